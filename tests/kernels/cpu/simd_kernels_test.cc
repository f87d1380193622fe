#include "kernels/cpu/simd_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/instruction_set.h"

namespace attendant::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

class SimdKernelsTest : public ::testing::TestWithParam<const SimdKernels*> {
 protected:
  const SimdKernels& simd() const { return *GetParam(); }
  std::vector<float> Exp(std::vector<float> x) const {
    x.resize((x.size() + 15) / 16 * 16);
    std::vector<float> y(x.size());
    simd().exp(x.data(), x.size(), y.data());
    return y;
  }
};

TEST_P(SimdKernelsTest, ExpAgreesWithDoubleFromMinus87ToZero) {
  std::vector<float> x;
  for (double e = -87; e <= 0; e += 87.0 / (1 << 20)) {
    x.push_back(static_cast<float>(e));
  }
  const std::vector<float> y = Exp(x);
  double worst = 0, worst_near_zero = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]));
    const double error = std::abs(y[i] - exact) / exact;
    worst = std::max(worst, error);
    if (x[i] > -16) worst_near_zero = std::max(worst_near_zero, error);
  }
  // Units in the last place of 1 to 2 are 1.2e-7.
  EXPECT_LT(worst, 4e-7);
  EXPECT_LT(worst_near_zero, 1.5e-7);
}

TEST_P(SimdKernelsTest, ExpIsExactWhereItMustBe) {
  const float nan_with_payload = std::bit_cast<float>(0x7fffffffu);
  const std::vector<float> y = Exp(
      {0.0f, -0.0f, -kInfinity, -88.03f, -127.0f, -1e30f, NAN, nan_with_payload,
       -nan_with_payload, std::bit_cast<float>(0x7f800001u)});
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_EQ(y[1], 1.0f);
  for (int i = 2; i < 6; ++i) {
    EXPECT_EQ(std::bit_cast<uint32_t>(y[i]), 0u) << i;
  }
  for (int i = 6; i < 10; ++i) EXPECT_TRUE(std::isnan(y[i])) << i;
}

TEST_P(SimdKernelsTest, TanhAgreesWithDouble) {
  std::vector<float> x;
  for (float t = 1e-6f; t < 100; t *= 1.0001f) {
    x.push_back(t);
    x.push_back(-t);
  }
  x.insert(x.end(), {0.0f, kInfinity, -kInfinity, NAN});
  x.resize((x.size() + 15) / 16 * 16);
  std::vector<float> y(x.size());
  simd().tanh(x.data(), x.size(), y.data());
  for (size_t i = 0; i < x.size(); ++i) {
    const double exact = std::tanh(static_cast<double>(x[i]));
    if (std::isnan(exact)) {
      EXPECT_TRUE(std::isnan(y[i]));
    } else {
      ASSERT_NEAR(y[i], exact, 4e-7 * std::abs(exact)) << x[i];
    }
  }
}

TEST_P(SimdKernelsTest, ConvertsEvery16BitNumber) {
  for (DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    std::vector<uint16_t> bits(65536 + 3);
    for (size_t i = 0; i < bits.size(); ++i) bits[i] = i;
    std::vector<float> floats(bits.size());
    simd().to_float(bits.data(), dtype, bits.size(), floats.data());
    std::vector<uint16_t> back(bits.size());
    simd().from_float(floats.data(), 1.0f, bits.size(), dtype, back.data());
    for (size_t i = 0; i < bits.size(); ++i) {
      const float expected = LoadAsFloat(bits.data(), dtype, i);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(floats[i]));
        ASSERT_TRUE(std::isnan(LoadAsFloat(back.data(), dtype, i)));
      } else {
        ASSERT_EQ(floats[i], expected) << i;
        ASSERT_EQ(back[i], bits[i]) << Name(dtype);
      }
    }
  }
}

TEST_P(SimdKernelsTest, RoundsToNearestEven) {
  std::vector<float> floats;
  for (uint32_t i = 0; i < 1u << 16; ++i) {
    floats.push_back(std::bit_cast<float>(i * 65521u + 12345u));
  }
  for (float tie : {257.0f, 259.0f, 2049.0f, 2051.0f, 65519.0f, 65520.0f}) {
    floats.push_back(tie);
  }
  for (DataType dtype : {DataType::kFloat16, DataType::kBFloat16}) {
    std::vector<uint16_t> bits(floats.size());
    simd().from_float(floats.data(), 1.0f, floats.size(), dtype, bits.data());
    for (size_t i = 0; i < floats.size(); ++i) {
      if (std::isnan(floats[i])) continue;
      const uint16_t expected = dtype == DataType::kFloat16
                                    ? FloatToFloat16(floats[i])
                                    : FloatToBFloat16(floats[i]);
      ASSERT_EQ(bits[i], expected) << Name(dtype) << " " << floats[i];
    }
  }
}

TEST_P(SimdKernelsTest, TransposesAnyShape) {
  for (int64_t rows : {1, 3, 4, 7, 48}) {
    for (int64_t columns : {1, 2, 4, 5, 65}) {
      std::vector<uint32_t> from(rows * (columns + 2)),
          to(columns * (rows + 3));
      for (size_t i = 0; i < from.size(); ++i) from[i] = i + 1;
      simd().transpose(from.data(), columns + 2, rows, columns, to.data(),
                       rows + 3);
      for (int64_t c = 0; c < columns; ++c) {
        for (int64_t r = 0; r < rows + 3; ++r) {
          ASSERT_EQ(to[c * (rows + 3) + r],
                    r < rows ? from[r * (columns + 2) + c] : 0);
        }
      }
    }
  }
}

TEST_P(SimdKernelsTest, PackValuesNamesAndClearsWhatIsNotFinite) {
  for (const TileKernels& tile : {simd().tile_fp32, simd().tile_bf16}) {
    for (float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      for (int place : {0, 7, 12, 9 * 5 + 3}) {
        const bool bf16 = tile.bf16_operands;
        const DataType dtype = bf16 ? DataType::kBFloat16 : DataType::kFloat32;
        constexpr int kDims = 9, kKeys = 6, kPadded = 32;
        std::vector<float> v(kKeys * kDims, 0.0f);
        for (int i = 0; i < kKeys * kDims; ++i) {
          StoreFromFloat(v.data(), dtype, i, 1.0f + i);
        }
        std::vector<float> packed(4 * kPadded * 16, NAN);
        std::vector<float> row(kDims + 2 * kLanePadding);
        PackValuesArgs args{.v = v.data(),
                            .dtype = dtype,
                            .v_pitch = kDims,
                            .num_keys = kKeys,
                            .num_padded = kPadded,
                            .head_dim_v = kDims,
                            .packed = packed.data(),
                            .panel_pitch = kPadded * tile.panel,
                            .row = row.data()};
        EXPECT_TRUE(tile.pack_values(args));
        StoreFromFloat(v.data(), dtype, place, bad);
        EXPECT_FALSE(tile.pack_values(args));
        int ones = 0;
        const int panels = (kDims + tile.panel - 1) / tile.panel;
        for (int i = 0; i < panels * kPadded * tile.panel; ++i) {
          const float value = LoadAsFloat(packed.data(), dtype, i);
          EXPECT_TRUE(std::isfinite(value));
          ones += value != 0;
        }
        EXPECT_EQ(ones, kKeys * kDims - 1);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, SimdKernelsTest, ::testing::ValuesIn([] {
                           std::vector<const SimdKernels*> all;
                           for (const SimdKernels& simd : AllSimdKernels())
                             all.push_back(&simd);
                           return all;
                         }()),
                         [](const auto& info) {
                           return std::string(info.param->name);
                         });

}  // namespace
}  // namespace attendant::kernels::cpu
