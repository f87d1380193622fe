#include "server/request/element_conversion.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace attendant::server {
namespace {

using kernels::DataType;

// Blocks of a constant size, through local arrays: aligned, alias-free, and so
// vectorised. One block stays in the first-level cache.
constexpr int64_t kBlock = 1024;

// Both sides of each choice are computed, then one is selected: without
// branches the loops below become vector code.
inline uint32_t Select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = -static_cast<uint32_t>(condition);
  return (yes & mask) | (no & ~mask);
}

inline float WidenFloat16(uint16_t half) {
  const uint32_t bits = half;
  const uint32_t sign = (bits & 0x8000) << 16;
  const uint32_t magnitude = bits & 0x7fff;
  const uint32_t normal = (magnitude << 13) + (112u << 23);
  const uint32_t special = (magnitude << 13) | 0x7f800000;
  // Zero and subnormals: magnitude * 2^-24, exact in fp32.
  const uint32_t small = std::bit_cast<uint32_t>(
      static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
  const uint32_t finite = Select(magnitude < 0x0400, small, normal);
  return std::bit_cast<float>(sign |
                              Select(magnitude >= 0x7c00, special, finite));
}

inline uint16_t NarrowFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - 0x38000000 + 0xfff + odd) >> 13;
  // Below 2^-14: adding 0.5 leaves 2^-24 units in the low bits, rounded by the
  // FPU. Other magnitudes are replaced, lest a NaN slow the adder.
  const uint32_t below = Select(magnitude < 0x38800000, magnitude, 0);
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(below) + 0.5f) - 0x3f000000;
  uint32_t result = Select(magnitude < 0x38800000, small, normal);
  result = Select(magnitude >= 0x477ff000, 0x7c00, result);  // from 65520 on
  result = Select(magnitude > 0x7f800000, 0x7e00, result);
  return static_cast<uint16_t>(sign | result);
}

inline uint16_t NarrowBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x0040;
  return static_cast<uint16_t>(
      Select((bits & 0x7fffffff) > 0x7f800000, quiet, rounded));
}

void Widen(const std::byte* source, DataType from, float* block,
           int64_t count) {
  if (from == DataType::kFloat32) {
    std::memcpy(block, source, count * sizeof(float));
    return;
  }
  alignas(64) uint16_t halves[kBlock];
  if (count < kBlock) std::memset(halves, 0, sizeof(halves));
  std::memcpy(halves, source, count * sizeof(uint16_t));
  if (from == DataType::kFloat16) {
    for (int64_t i = 0; i < kBlock; ++i) block[i] = WidenFloat16(halves[i]);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) {
      block[i] = kernels::BFloat16ToFloat(halves[i]);
    }
  }
}

void Narrow(const float* block, DataType to, std::byte* destination,
            int64_t count) {
  if (to == DataType::kFloat32) {
    std::memcpy(destination, block, count * sizeof(float));
    return;
  }
  alignas(64) uint16_t halves[kBlock];
  if (to == DataType::kFloat16) {
    for (int64_t i = 0; i < kBlock; ++i) halves[i] = NarrowFloat16(block[i]);
  } else {
    for (int64_t i = 0; i < kBlock; ++i) halves[i] = NarrowBFloat16(block[i]);
  }
  std::memcpy(destination, halves, count * sizeof(uint16_t));
}

}  // namespace

void ConvertElements(const std::byte* source, kernels::DataType from,
                     std::byte* destination, kernels::DataType to,
                     int64_t count) {
  if (from == to) {
    std::memcpy(destination, source, count * kernels::SizeOf(from));
    return;
  }
  alignas(64) float block[kBlock] = {};
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t size = std::min(kBlock, count - done);
    Widen(source + done * kernels::SizeOf(from), from, block, size);
    Narrow(block, to, destination + done * kernels::SizeOf(to), size);
  }
}

void NarrowInPlace(std::byte* data, DataType to, int64_t count) {
  alignas(64) float block[kBlock] = {};
  for (int64_t done = 0; done < count; done += kBlock) {
    const int64_t size = std::min(kBlock, count - done);
    // The block is read whole before it is written, at or below its place.
    Widen(data + done * kernels::SizeOf(DataType::kFloat32), DataType::kFloat32,
          block, size);
    Narrow(block, to, data + done * kernels::SizeOf(to), size);
  }
}

}  // namespace attendant::server
