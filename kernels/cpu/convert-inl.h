// Loads of any input type as floats, conversions of whole rows, transposes.
// Included once for each instruction set.
#if defined(ATTENDANT_KERNELS_CPU_CONVERT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_CONVERT_INL_H_
#undef ATTENDANT_KERNELS_CPU_CONVERT_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_CONVERT_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kernels/base/data_type.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Element types as template arguments.
struct Float32 {
  using Stored = float;
  static constexpr DataType kType = DataType::kFloat32;
};
struct Float16 {
  using Stored = hwy::float16_t;
  static constexpr DataType kType = DataType::kFloat16;
};
struct BFloat16 {
  using Stored = hwy::bfloat16_t;
  static constexpr DataType kType = DataType::kBFloat16;
};

// Instruction sets that convert fp16 themselves. Highway 1.0.3 makes finite
// numbers of fp16's inf and NaN on the others.
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr bool kConvertsFloat16 = true;
#else
inline constexpr bool kConvertsFloat16 = false;
#endif

template <class D>
HWY_INLINE hn::Vec<D> Float16BitsToFloats(D d, const uint16_t* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
  const auto sign =
      hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, uint32_t{0x8000})));
  const auto magnitude =
      hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, uint32_t{0x7fff})));
  // 2^112 moves the exponent's bias, of subnormals too.
  const auto scaled =
      hn::BitCast(du, hn::Mul(hn::BitCast(d, magnitude), hn::Set(d, 0x1p112f)));
  const auto special = hn::Gt(magnitude, hn::Set(du, uint32_t{0x7bff} << 13));
  const auto exponent =
      hn::IfThenElseZero(special, hn::Set(du, uint32_t{0x7f800000}));
  return hn::BitCast(d, hn::Or(hn::Or(scaled, exponent), sign));
}

// A vector of floats from Lanes(d) elements at `from`, of any alignment.
template <class Type, class D>
HWY_INLINE hn::Vec<D> LoadFloats(D d, const typename Type::Stored* from) {
  if constexpr (Type::kType == DataType::kFloat32) {
    return hn::LoadU(d, from);
  } else if constexpr (Type::kType == DataType::kFloat16 && !kConvertsFloat16) {
    return Float16BitsToFloats(d, reinterpret_cast<const uint16_t*>(from));
  } else {
    const hn::Rebind<typename Type::Stored, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, from));
  }
}

// The same of `count` < Lanes(d) elements; the other lanes are 0.
template <class Type, class D>
HWY_INLINE hn::Vec<D> LoadSomeFloats(D d, const typename Type::Stored* from,
                                     size_t count) {
  HWY_ALIGN typename Type::Stored buffer[hn::MaxLanes(D())];
  std::memset(buffer, 0, sizeof(buffer));
  std::memcpy(buffer, from, count * sizeof(buffer[0]));
  return LoadFloats<Type>(d, buffer);
}

template <class Type>
void ToFloatOf(const void* from_bytes, int64_t count, float* to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = hn::Lanes(d);
  const auto* from = static_cast<const typename Type::Stored*>(from_bytes);
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(LoadFloats<Type>(d, from + i), d, to + i);
  }
  for (; i < count; ++i) to[i] = LoadAsFloat(from_bytes, Type::kType, i);
}

void ToFloat(const void* from, DataType dtype, int64_t count, float* to) {
  switch (dtype) {
    case DataType::kFloat32:
      return ToFloatOf<Float32>(from, count, to);
    case DataType::kFloat16:
      return ToFloatOf<Float16>(from, count, to);
    case DataType::kBFloat16:
      return ToFloatOf<BFloat16>(from, count, to);
  }
}

// Highway 1.0.3 cuts off the low half instead of rounding; done by hand.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> RoundToBFloat16Bits(D /*d*/, V v) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x00400000u));
  return hn::ShiftRight<16>(
      hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(v)), quiet, rounded));
}

void FromFloat(const float* from, float factor, int64_t count, DataType dtype,
               void* to) {
  const hn::ScalableTag<float> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = hn::Lanes(d);
  const auto vfactor = hn::Set(d, factor);
  int64_t i = 0;
  if (dtype == DataType::kFloat32) {
    for (; i + lanes <= count; i += lanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + i), vfactor), d,
                 static_cast<float*>(to) + i);
    }
  } else if (dtype == DataType::kBFloat16) {
    const hn::Rebind<int32_t, decltype(d)> di;
    for (; i + lanes <= count; i += lanes) {
      const auto bits =
          RoundToBFloat16Bits(d, hn::Mul(hn::LoadU(d, from + i), vfactor));
      hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, bits)), d16,
                 static_cast<uint16_t*>(to) + i);
    }
  }
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  else {  // F16C rounds to nearest even; elsewhere element by element
    const hn::Rebind<hwy::float16_t, decltype(d)> dh;
    for (; i + lanes <= count; i += lanes) {
      const auto value = hn::Mul(hn::LoadU(d, from + i), vfactor);
      hn::StoreU(hn::DemoteTo(dh, value), dh,
                 static_cast<hwy::float16_t*>(to) + i);
    }
  }
#endif
  for (; i < count; ++i) StoreFromFloat(to, dtype, i, from[i] * factor);
}

// In blocks of 4 rows: four rows' elements of a column are stored together.
void Transpose(const uint32_t* from, int64_t from_pitch, int64_t rows,
               int64_t columns, uint32_t* to, int64_t to_pitch) {
#if HWY_TARGET != HWY_SCALAR
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d64;
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    int64_t c = 0;
    for (; c + 4 <= columns; c += 4) {
      const uint32_t* in = from + r * from_pitch + c;
      const auto row0 = hn::LoadU(d, in);
      const auto row1 = hn::LoadU(d, in + from_pitch);
      const auto row2 = hn::LoadU(d, in + 2 * from_pitch);
      const auto row3 = hn::LoadU(d, in + 3 * from_pitch);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, row0, row1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, row2, row3));
      const auto up01 = hn::BitCast(d64, hn::InterleaveUpper(d, row0, row1));
      const auto up23 = hn::BitCast(d64, hn::InterleaveUpper(d, row2, row3));
      uint32_t* out = to + c * to_pitch + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d,
                 out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d,
                 out + to_pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, up01, up23)), d,
                 out + 2 * to_pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, up01, up23)), d,
                 out + 3 * to_pitch);
    }
    for (; c < columns; ++c) {
      for (int64_t i = r; i < r + 4; ++i) {
        to[c * to_pitch + i] = from[i * from_pitch + c];
      }
    }
  }
#else
  int64_t r = 0;
#endif
  for (; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      to[c * to_pitch + r] = from[r * from_pitch + c];
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
