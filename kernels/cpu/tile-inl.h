// The tile form's pieces: register-tiled matrix products with rows of Q in the
// lanes, and online softmax on what they leave. Included once for each
// instruction set.
#if defined(ATTENDANT_KERNELS_CPU_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_TILE_INL_H_
#undef ATTENDANT_KERNELS_CPU_TILE_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/cpu/convert-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using TileTag = hn::CappedTag<float, 16>;
using TileVec = hn::Vec<TileTag>;

// Of a register tile unroll x kMaxVecs: 24 sums where there are 32 registers,
// 12 where there are 16.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
inline constexpr int kUnroll = 8;
#else
inline constexpr int kUnroll = 4;
#endif

// kUnroll keys against all rows: 1 broadcast for kVecs multiply-adds.
template <int kVecs>
HWY_INLINE void ScoreKeys(const ScoresArgs& a, int first, TileVec* max) {
  const TileTag d;
  const int64_t lanes = hn::Lanes(d);
  const float* k[kUnroll];
  for (int i = 0; i < kUnroll; ++i) {
    k[i] = static_cast<const float*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
  }
  TileVec sums[kUnroll][kVecs];
#pragma GCC unroll 8
  for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) sums[i][v] = hn::Zero(d);
  }
  const float* q = static_cast<const float*>(a.q);
  for (int64_t c = 0; c < a.head_dim; ++c) {
    TileVec rows[kVecs];
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) rows[v] = hn::LoadU(d, q + v * lanes);
    q += kVecs * lanes;
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
      const TileVec key = hn::Set(d, k[i][c]);
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        sums[i][v] = hn::MulAdd(key, rows[v], sums[i][v]);
      }
    }
  }
  const TileVec scale = hn::Set(d, a.scale);
  float* s = a.s + first * kVecs * lanes;
#pragma GCC unroll 8
  for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      const TileVec scaled = hn::Mul(sums[i][v], scale);
      max[v] = hn::Max(max[v], scaled);
      hn::StoreU(scaled, d, s + (i * kVecs + v) * lanes);
    }
  }
}

template <int kVecs>
void ScoresOf(const ScoresArgs& a) {
  const TileTag d;
  TileVec max[kVecs];
  for (TileVec& m : max) m = hn::Set(d, kMinusInfinity);
  for (int n = 0; n < a.num_padded; n += kUnroll) ScoreKeys<kVecs>(a, n, max);
  for (int v = 0; v < kVecs; ++v) {
    hn::StoreU(max[v], d, a.block_max + v * hn::Lanes(d));
  }
}

void Scores(const ScoresArgs& a) {
  switch (a.vecs) {
    case 1:
      return ScoresOf<1>(a);
    case 2:
      return ScoresOf<2>(a);
    default:
      return ScoresOf<3>(a);
  }
}

// One vector of rows, all keys of the block.
HWY_INLINE void MaskRows(const MaskArgs& a, int64_t column, int64_t rows) {
  const TileTag d;
  const hn::RebindToSigned<TileTag> di;
  const TileVec minus_infinity = hn::Set(d, kMinusInfinity);
  const auto lo = hn::LoadU(di, a.lo + column);
  const auto hi = hn::LoadU(di, a.hi + column);
  const TileVec cap = hn::Set(d, a.softcap);
  const TileVec inverse_cap = hn::Set(d, a.softcap > 0 ? 1 / a.softcap : 0.f);
  TileVec max = minus_infinity;
  for (int n = 0; n < a.num_padded; ++n) {
    float* place = a.s + n * rows + column;
    TileVec s = hn::LoadU(d, place);
    const auto key = hn::Set(di, n);
    if (a.general) {
      if (a.softcap > 0) {
        s = hn::Mul(cap, Tanh(d, hn::Mul(s, inverse_cap)));
      }
      if (a.slopes != nullptr) {
        const auto distance =
            hn::Abs(hn::Sub(hn::LoadU(di, a.diagonal + column), key));
        s = hn::NegMulAdd(hn::LoadU(d, a.slopes + column),
                          hn::ConvertTo(d, distance), s);
      }
      if (a.bias != nullptr) {
        const TileVec bias = hn::LoadU(d, a.bias + n * rows + column);
        s = a.bias_is_boolean
                ? hn::IfThenElse(hn::Eq(bias, minus_infinity), bias, s)
                : hn::Add(s, bias);
      }
    }
    const auto hidden = hn::Or(hn::Gt(lo, key), hn::Not(hn::Gt(hi, key)));
    s = hn::IfThenElse(hn::RebindMask(d, hidden), minus_infinity, s);
    max = hn::Max(max, s);
    hn::StoreU(s, d, place);
  }
  hn::StoreU(max, d, a.block_max + column);
}

void Mask(const MaskArgs& a) {
  const int64_t lanes = hn::Lanes(TileTag());
  for (int v = 0; v < a.vecs; ++v) MaskRows(a, v * lanes, a.vecs * lanes);
}

// New running maximum, and what to subtract: a row that has seen nothing but
// -inf subtracts 0, so that -inf - (-inf) never happens.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V StepMax(D d, V block_max, float* row_max, V* alpha) {
  const V old_max = hn::LoadU(d, row_max);
  const V new_max = hn::Max(old_max, block_max);
  const V base =
      hn::IfThenZeroElse(hn::Eq(new_max, hn::Set(d, kMinusInfinity)), new_max);
  hn::StoreU(new_max, d, row_max);
  *alpha = Exp(d, hn::Sub(old_max, base));
  return base;
}

template <int kVecs>
void SoftmaxOf(const SoftmaxArgs& a) {
  const TileTag d;
  const int64_t lanes = hn::Lanes(d);
  TileVec base[kVecs], alpha[kVecs], sum[kVecs];
  for (int v = 0; v < kVecs; ++v) {
    base[v] = StepMax(d, hn::LoadU(d, a.block_max + v * lanes),
                      a.row_max + v * lanes, &alpha[v]);
    hn::StoreU(alpha[v], d, a.alpha + v * lanes);
    sum[v] = hn::Zero(d);
  }
  const float* s = a.s;
  float* p = static_cast<float*>(a.p);
  for (int n = 0; n < a.num_padded; ++n) {
#pragma GCC unroll 3
    for (int v = 0; v < kVecs; ++v) {
      const TileVec weight =
          Exp(d, hn::Sub(hn::LoadU(d, s + v * lanes), base[v]));
      sum[v] = hn::Add(sum[v], weight);
      hn::StoreU(weight, d, p + v * lanes);
    }
    s += kVecs * lanes;
    p += kVecs * lanes;
  }
  for (int v = 0; v < kVecs; ++v) {
    float* total = a.row_sum + v * lanes;
    hn::StoreU(hn::MulAdd(hn::LoadU(d, total), alpha[v], sum[v]), d, total);
  }
}

void Softmax(const SoftmaxArgs& a) {
  switch (a.vecs) {
    case 1:
      return SoftmaxOf<1>(a);
    case 2:
      return SoftmaxOf<2>(a);
    default:
      return SoftmaxOf<3>(a);
  }
}

template <int kVecs>
void ValuesOf(const ValuesArgs& a) {
  const TileTag d;
  const int64_t lanes = hn::Lanes(d);
  const int64_t rows = kVecs * lanes;
  for (int64_t panel = 0; panel < a.num_panels; ++panel) {
    float* o = a.o + panel * kUnroll * rows;
    TileVec sums[kUnroll][kVecs];
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        sums[i][v] = hn::Mul(hn::LoadU(d, o + i * rows + v * lanes),
                             hn::LoadU(d, a.alpha + v * lanes));
      }
    }
    const float* v_key = static_cast<const float*>(a.v) + panel * a.panel_pitch;
    const float* p = static_cast<const float*>(a.p);
    for (int n = 0; n < a.num_padded; ++n) {
      TileVec weights[kVecs];
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) weights[v] = hn::LoadU(d, p + v * lanes);
      p += rows;
#pragma GCC unroll 8
      for (int i = 0; i < kUnroll; ++i) {
        const TileVec value = hn::Set(d, v_key[i]);
#pragma GCC unroll 3
        for (int v = 0; v < kVecs; ++v) {
          sums[i][v] = hn::MulAdd(value, weights[v], sums[i][v]);
        }
      }
      v_key += kUnroll;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kUnroll; ++i) {
#pragma GCC unroll 3
      for (int v = 0; v < kVecs; ++v) {
        hn::StoreU(sums[i][v], d, o + i * rows + v * lanes);
      }
    }
  }
}

void Values(const ValuesArgs& a) {
  switch (a.vecs) {
    case 1:
      return ValuesOf<1>(a);
    case 2:
      return ValuesOf<2>(a);
    default:
      return ValuesOf<3>(a);
  }
}

// Copies one row of V into its places; returns it times 0 (0 if finite).
HWY_INLINE hn::Vec<hn::CappedTag<float, kUnroll>> PackValueRow(
    const float* row, const PackValuesArgs& a, int key, bool clean) {
  const hn::CappedTag<float, kUnroll> d;
  const int64_t lanes = hn::Lanes(d);
  const auto zero = hn::Zero(d);
  auto poison = zero;
  float* to = static_cast<float*>(a.packed) + key * kUnroll;
  for (int64_t c = 0; c < a.head_dim_v; c += kUnroll, to += a.panel_pitch) {
    for (int64_t i = 0; i < kUnroll; i += lanes) {
      auto v = hn::LoadU(d, row + c + i);
      const auto is_zero = hn::Mul(v, zero);
      poison = hn::Add(poison, is_zero);
      if (clean) v = hn::IfThenElseZero(hn::Eq(is_zero, zero), v);
      hn::StoreU(v, d, to + i);
    }
  }
  return poison;
}

// `clean`: writes 0 for what is not finite. Returns whether all is finite.
HWY_INLINE bool PackValueRows(const PackValuesArgs& a, bool clean) {
  const hn::CappedTag<float, kUnroll> d;
  // A row can be read in place if whole panels stay inside it.
  const bool in_place =
      a.dtype == DataType::kFloat32 && a.head_dim_v % kUnroll == 0;
  auto poison = hn::Zero(d);
  for (int key = 0; key < a.num_keys; ++key) {
    const auto* from =
        static_cast<const char*>(a.v) + key * a.v_pitch * SizeOf(a.dtype);
    const float* row = reinterpret_cast<const float*>(from);
    if (!in_place) {
      ToFloat(from, a.dtype, a.head_dim_v, a.row);
      std::memset(a.row + a.head_dim_v, 0, kUnroll * sizeof(float));
      row = a.row;
    }
    poison = hn::Add(poison, PackValueRow(row, a, key, clean));
  }
  return hn::AllTrue(d, hn::Eq(poison, hn::Zero(d)));
}

bool PackValues(const PackValuesArgs& a) {
  const bool finite = PackValueRows(a, false);
  if (!finite) PackValueRows(a, true);
  const int64_t panels = (a.head_dim_v + kUnroll - 1) / kUnroll;
  for (int64_t panel = 0; panel < panels; ++panel) {
    float* to = static_cast<float*>(a.packed) + panel * a.panel_pitch;
    std::fill(to + a.num_keys * kUnroll, to + a.num_padded * kUnroll, 0.0f);
  }
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
