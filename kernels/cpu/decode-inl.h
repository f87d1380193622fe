// The decode form's pieces: few rows of Q, K and V read once as they lie in
// memory. Included once for each instruction set.
#if defined(ATTENDANT_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#undef ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/convert-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DecodeTag = hn::CappedTag<float, 16>;
using DecodeVec = hn::Vec<DecodeTag>;

// 4 keys against kRows rows of Q.
template <class Type, int kRows>
HWY_INLINE void DecodeScoreKeys(const DecodeScoresArgs& a, int first) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  constexpr int kKeys = 4;
  const typename Type::Stored* k[kKeys];
  for (int i = 0; i < kKeys; ++i) {
    k[i] = static_cast<const typename Type::Stored*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
  }
  DecodeVec sums[kKeys][kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kKeys; ++i) {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[i][r] = hn::Zero(d);
  }
  const int64_t whole = a.head_dim / lanes * lanes;
  for (int64_t c = 0; c < whole; c += lanes) {
    DecodeVec keys[kKeys];
#pragma GCC unroll 4
    for (int i = 0; i < kKeys; ++i) keys[i] = LoadFloats<Type>(d, k[i] + c);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const DecodeVec q = hn::LoadU(d, a.q + r * a.q_pitch + c);
#pragma GCC unroll 4
      for (int i = 0; i < kKeys; ++i) {
        sums[i][r] = hn::MulAdd(q, keys[i], sums[i][r]);
      }
    }
  }
  if (whole < a.head_dim) {
    for (int i = 0; i < kKeys; ++i) {
      const DecodeVec key =
          LoadSomeFloats<Type>(d, k[i] + whole, a.head_dim - whole);
      for (int r = 0; r < kRows; ++r) {
        const DecodeVec q = hn::LoadU(d, a.q + r * a.q_pitch + whole);
        sums[i][r] = hn::MulAdd(q, key, sums[i][r]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kKeys && first + i < a.num_keys; ++i) {
      a.s[r * kKeyBlock + first + i] =
          a.scale * hn::GetLane(hn::SumOfLanes(d, sums[i][r]));
    }
  }
}

template <class Type, int kRows>
void DecodeScoresOf(const DecodeScoresArgs& a) {
  for (int n = 0; n < a.num_keys; n += 4) DecodeScoreKeys<Type, kRows>(a, n);
}

// Up to four rows at once: what fits in registers.
template <class Type>
void DecodeScoresOfType(DecodeScoresArgs a) {
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        DecodeScoresOf<Type, 1>(a);
        break;
      case 2:
        DecodeScoresOf<Type, 2>(a);
        break;
      case 3:
        DecodeScoresOf<Type, 3>(a);
        break;
      default:
        DecodeScoresOf<Type, 4>(a);
    }
    a.rows -= rows;
    a.q += rows * a.q_pitch;
    a.s += rows * kKeyBlock;
  }
}

void DecodeScores(const DecodeScoresArgs& a) {
  switch (a.dtype) {
    case DataType::kFloat32:
      return DecodeScoresOfType<Float32>(a);
    case DataType::kFloat16:
      return DecodeScoresOfType<Float16>(a);
    case DataType::kBFloat16:
      return DecodeScoresOfType<BFloat16>(a);
  }
}

void DecodeMask(const DecodeMaskArgs& a) {
  const DecodeTag d;
  const hn::RebindToSigned<DecodeTag> di;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto minus_infinity = hn::Set(d, kMinusInfinity);
  const auto cap = hn::Set(d, a.softcap);
  const auto inverse_cap = hn::Set(d, a.softcap > 0 ? 1 / a.softcap : 0.0f);
  const auto lo = hn::Set(di, a.lo);
  const auto hi = hn::Set(di, a.hi);
  for (int n = 0; n < a.num_keys; n += lanes) {
    DecodeVec s = hn::LoadU(d, a.s + n);
    const auto key = hn::Iota(di, n);
    if (a.general) {
      if (a.softcap > 0) {
        s = hn::Mul(cap, Tanh(d, hn::Mul(s, inverse_cap)));
      }
      if (a.slope != 0) {
        const auto distance = hn::Abs(hn::Sub(hn::Set(di, a.diagonal), key));
        s = hn::NegMulAdd(hn::Set(d, a.slope), hn::ConvertTo(d, distance), s);
      }
      if (a.bias != nullptr) {
        const DecodeVec bias = hn::LoadU(d, a.bias + n);
        s = a.bias_is_boolean
                ? hn::IfThenElse(hn::Eq(bias, minus_infinity), bias, s)
                : hn::Add(s, bias);
      }
    }
    const auto hidden = hn::Or(hn::Gt(lo, key), hn::Not(hn::Gt(hi, key)));
    s = hn::IfThenElse(hn::RebindMask(d, hidden), minus_infinity, s);
    hn::StoreU(s, d, a.s + n);
  }
}

void DecodeSoftmax(const DecodeSoftmaxArgs& a) {
  const DecodeTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  DecodeVec max = hn::Set(d, kMinusInfinity);
  for (int n = 0; n < a.num_keys; n += lanes) {
    max = hn::Max(max, hn::LoadU(d, a.s + n));
  }
  const float block_max = hn::GetLane(hn::MaxOfLanes(d, max));
  const float new_max = std::max(*a.row_max, block_max);
  const float base = new_max == kMinusInfinity ? 0.0f : new_max;
  const float alpha = hn::GetLane(Exp(d, hn::Set(d, *a.row_max - base)));
  DecodeVec sum = hn::Zero(d);
  for (int n = 0; n < a.num_keys; n += lanes) {
    const DecodeVec p =
        Exp(d, hn::Sub(hn::LoadU(d, a.s + n), hn::Set(d, base)));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, a.s + n);
  }
  *a.row_max = new_max;
  *a.alpha = alpha;
  *a.row_sum = *a.row_sum * alpha + hn::GetLane(hn::SumOfLanes(d, sum));
}

// Which V a slice of O sees: as it is, or 0 for what is not finite.
enum class Purity { kAsIs, kFiniteOnly };

template <class Type, Purity kPurity>
HWY_INLINE DecodeVec LoadValues(DecodeTag d, const typename Type::Stored* v,
                                int64_t count) {
  const int64_t lanes = hn::Lanes(d);
  DecodeVec value = count >= lanes ? LoadFloats<Type>(d, v)
                                   : LoadSomeFloats<Type>(d, v, count);
  if constexpr (kPurity == Purity::kFiniteOnly) {
    const auto zero = hn::Zero(d);
    value = hn::IfThenElseZero(hn::Eq(hn::Mul(value, zero), zero), value);
  }
  return value;
}

// kRows rows of O, kVecs vectors of dims from `first` on. False, with O
// unchanged, if the result is not finite (kAsIs only).
template <class Type, int kRows, int kVecs, Purity kPurity>
HWY_INLINE bool DecodeSlice(const DecodeValuesArgs& a, int64_t first) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  DecodeVec sums[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      sums[r][v] =
          hn::Mul(hn::LoadU(d, a.o + r * a.o_pitch + first + v * lanes),
                  hn::Set(d, a.alpha[r]));
    }
  }
  const auto* row = static_cast<const typename Type::Stored*>(a.v) + first;
  for (int n = 0; n < a.num_keys; ++n, row += a.v_pitch) {
    DecodeVec values[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      // Only the last vector of a row can be a part.
      const int64_t count =
          kVecs == 1 ? a.head_dim_v - first : static_cast<int64_t>(lanes);
      values[v] = LoadValues<Type, kPurity>(d, row + v * lanes, count);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const DecodeVec p = hn::Set(d, a.p[r * kKeyBlock + n]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        sums[r][v] = hn::MulAdd(p, values[v], sums[r][v]);
      }
    }
  }
  if constexpr (kPurity == Purity::kAsIs) {
    const auto zero = hn::Zero(d);
    auto poison = zero;
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVecs; ++v) {
        poison = hn::MulAdd(sums[r][v], zero, poison);
      }
    }
    if (!hn::AllTrue(d, hn::Eq(poison, zero))) return false;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      hn::StoreU(sums[r][v], d, a.o + r * a.o_pitch + first + v * lanes);
    }
  }
  return true;
}

template <class Type, int kRows, int kVecs>
HWY_INLINE bool DecodeSliceOrFinite(const DecodeValuesArgs& a, int64_t first) {
  if (DecodeSlice<Type, kRows, kVecs, Purity::kAsIs>(a, first)) return true;
  DecodeSlice<Type, kRows, kVecs, Purity::kFiniteOnly>(a, first);
  return false;
}

template <class Type, int kRows>
bool DecodeValuesOf(const DecodeValuesArgs& a) {
  const int64_t lanes = hn::Lanes(DecodeTag());
  bool finite = true;
  int64_t c = 0;
  for (; c + 4 * lanes <= a.head_dim_v; c += 4 * lanes) {
    finite &= DecodeSliceOrFinite<Type, kRows, 4>(a, c);
  }
  for (; c < a.head_dim_v; c += lanes) {
    finite &= DecodeSliceOrFinite<Type, kRows, 1>(a, c);
  }
  return finite;
}

template <class Type>
bool DecodeValuesOfType(DecodeValuesArgs a) {
  bool finite = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        finite &= DecodeValuesOf<Type, 1>(a);
        break;
      case 2:
        finite &= DecodeValuesOf<Type, 2>(a);
        break;
      case 3:
        finite &= DecodeValuesOf<Type, 3>(a);
        break;
      default:
        finite &= DecodeValuesOf<Type, 4>(a);
    }
    a.rows -= rows;
    a.p += rows * kKeyBlock;
    a.alpha += rows;
    a.o += rows * a.o_pitch;
  }
  return finite;
}

bool DecodeValues(const DecodeValuesArgs& a) {
  switch (a.dtype) {
    case DataType::kFloat32:
      return DecodeValuesOfType<Float32>(a);
    case DataType::kFloat16:
      return DecodeValuesOfType<Float16>(a);
    case DataType::kBFloat16:
      return DecodeValuesOfType<BFloat16>(a);
  }
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
