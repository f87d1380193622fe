// Element types of tensors, and bf16/fp16 <-> float on the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace attendant::kernels {

enum class DataType : uint8_t { kFloat32, kFloat16, kBFloat16 };

constexpr int64_t SizeOf(DataType type) {
  return type == DataType::kFloat32 ? 4 : 2;
}

constexpr const char* Name(DataType type) {
  switch (type) {
    case DataType::kFloat32:
      return "fp32";
    case DataType::kFloat16:
      return "fp16";
    case DataType::kBFloat16:
      return "bf16";
  }
  return "?";
}

inline float BFloat16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; NaN stays a quiet NaN.
inline uint16_t FloatToBFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 0x0040);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float Float16ToFloat(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1f;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0x1f) {
    return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  }
  if (exponent == 0) {  // zero and subnormals: mantissa * 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) |
                              (mantissa << 13));
}

// Round to nearest, ties to even; overflow saturates to inf; NaN stays NaN.
inline uint16_t FloatToFloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) return sign | 0x7e00;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // rounds to >= 65520
  if (magnitude < 0x38800000) {  // below the smallest normal, 2^-14
    // Adding 0.5 aligns the mantissa so that its low bits count 2^-24 units,
    // with the FPU's own ties-to-even rounding.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return sign |
           static_cast<uint16_t>(std::bit_cast<uint32_t>(shifted) - 0x3f000000);
  }
  const uint32_t odd = (magnitude >> 13) & 1;
  return sign |
         static_cast<uint16_t>((magnitude - 0x38000000 + 0xfff + odd) >> 13);
}

// Element `index` of a tensor of `type`.
inline float LoadAsFloat(const void* data, DataType type, int64_t index) {
  switch (type) {
    case DataType::kFloat32:
      return static_cast<const float*>(data)[index];
    case DataType::kFloat16:
      return Float16ToFloat(static_cast<const uint16_t*>(data)[index]);
    case DataType::kBFloat16:
      return BFloat16ToFloat(static_cast<const uint16_t*>(data)[index]);
  }
  return std::numeric_limits<float>::quiet_NaN();
}

inline void StoreFromFloat(void* data, DataType type, int64_t index,
                           float value) {
  switch (type) {
    case DataType::kFloat32:
      static_cast<float*>(data)[index] = value;
      return;
    case DataType::kFloat16:
      static_cast<uint16_t*>(data)[index] = FloatToFloat16(value);
      return;
    case DataType::kBFloat16:
      static_cast<uint16_t*>(data)[index] = FloatToBFloat16(value);
      return;
  }
}

}  // namespace attendant::kernels
