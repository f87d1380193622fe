#include "server/request/element_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <vector>

namespace attendant::server {
namespace {

using kernels::DataType;

template <typename To, typename From>
std::vector<To> Convert(const std::vector<From>& source, DataType from,
                        DataType to) {
  std::vector<To> result(source.size());
  ConvertElements(reinterpret_cast<const std::byte*>(source.data()), from,
                  reinterpret_cast<std::byte*>(result.data()), to,
                  static_cast<int64_t>(source.size()));
  return result;
}

std::vector<uint16_t> AllHalves() {
  std::vector<uint16_t> halves(1 << 16);
  for (size_t i = 0; i < halves.size(); ++i) {
    halves[i] = static_cast<uint16_t>(i);
  }
  return halves;
}

// Every exponent and sign with many mantissas, the ties among them.
std::vector<float> ManyFloats() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 509) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (uint64_t high = 0; high < (1 << 20); ++high) {
    for (const uint32_t low :
         {0x000u, 0x001u, 0x7ffu, 0x800u, 0x801u, 0xfffu}) {
      values.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(high << 12) | low));
    }
  }
  return values;
}

TEST(ElementConversionTest, EveryHalfWidensToItsValue) {
  const std::vector<uint16_t> halves = AllHalves();
  const auto fp16 =
      Convert<uint32_t>(halves, DataType::kFloat16, DataType::kFloat32);
  const auto bf16 =
      Convert<uint32_t>(halves, DataType::kBFloat16, DataType::kFloat32);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(fp16[i],
              std::bit_cast<uint32_t>(kernels::Float16ToFloat(halves[i])))
        << i;
    ASSERT_EQ(bf16[i],
              std::bit_cast<uint32_t>(kernels::BFloat16ToFloat(halves[i])))
        << i;
  }
}

TEST(ElementConversionTest, NarrowingRoundsToNearestEven) {
  const std::vector<float> values = ManyFloats();
  const auto fp16 =
      Convert<uint16_t>(values, DataType::kFloat32, DataType::kFloat16);
  const auto bf16 =
      Convert<uint16_t>(values, DataType::kFloat32, DataType::kBFloat16);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(fp16[i], kernels::FloatToFloat16(values[i])) << values[i];
    ASSERT_EQ(bf16[i], kernels::FloatToBFloat16(values[i])) << values[i];
  }
}

TEST(ElementConversionTest, BetweenHalvesRoundsOnce) {
  const std::vector<uint16_t> halves = AllHalves();
  const auto to_bf16 =
      Convert<uint16_t>(halves, DataType::kFloat16, DataType::kBFloat16);
  const auto to_fp16 =
      Convert<uint16_t>(halves, DataType::kBFloat16, DataType::kFloat16);
  for (size_t i = 0; i < halves.size(); ++i) {
    ASSERT_EQ(to_bf16[i],
              kernels::FloatToBFloat16(kernels::Float16ToFloat(halves[i])));
    ASSERT_EQ(to_fp16[i],
              kernels::FloatToFloat16(kernels::BFloat16ToFloat(halves[i])));
  }
}

TEST(ElementConversionTest, NeitherSideNeedsAlignment) {
  std::vector<char> source(1 + 1500 * sizeof(float));
  std::vector<char> destination(1 + 1500 * sizeof(uint16_t) + 1, 'x');
  for (int i = 0; i < 1500; ++i) {
    const float value = static_cast<float>(i);
    std::memcpy(&source[1 + i * sizeof(float)], &value, sizeof(value));
  }
  ConvertElements(reinterpret_cast<const std::byte*>(source.data() + 1),
                  DataType::kFloat32,
                  reinterpret_cast<std::byte*>(destination.data() + 1),
                  DataType::kFloat16, 1500);
  for (int i = 0; i < 1500; ++i) {
    uint16_t half = 0;
    std::memcpy(&half, &destination[1 + i * sizeof(half)], sizeof(half));
    ASSERT_EQ(kernels::Float16ToFloat(half), static_cast<float>(i));
  }
  EXPECT_EQ(destination.front(), 'x');
  EXPECT_EQ(destination.back(), 'x');
}

TEST(ElementConversionTest, NarrowingInPlaceGivesTheSameHalves) {
  const std::vector<float> values = ManyFloats();
  for (const DataType to : {DataType::kFloat16, DataType::kBFloat16}) {
    const auto expected = Convert<uint16_t>(values, DataType::kFloat32, to);
    std::vector<float> narrowed = values;
    NarrowInPlace(reinterpret_cast<std::byte*>(narrowed.data()), to,
                  static_cast<int64_t>(narrowed.size()));
    EXPECT_EQ(std::memcmp(narrowed.data(), expected.data(),
                          expected.size() * sizeof(uint16_t)),
              0);
  }
}

}  // namespace
}  // namespace attendant::server
