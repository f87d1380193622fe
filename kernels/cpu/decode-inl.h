// The decode form's pieces: few rows of Q, K and V read once as they lie in
// memory. Included once for each instruction set.
#if defined(ATTENDANT_KERNELS_CPU_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#undef ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_DECODE_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/convert-inl.h"
#include "kernels/cpu/decode_fetch.h"
#include "kernels/cpu/decode_softmax-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Fetches element c from `row` on, once for each line of 64 bytes. Spread over
// the arithmetic, and in the order of memory: processors drop prefetches that
// come faster than memory answers, and foresee lines that follow each other.
template <class Stored>
HWY_INLINE void FetchElement(const char* row, int64_t c) {
  if (c * sizeof(Stored) % 64 == 0) hwy::Prefetch(row + c * sizeof(Stored));
}

#if HWY_TARGET != HWY_SCALAR
// The sums of a whole vector's blocks of 128 bits, in one such block.
template <class D, class V = hn::Vec<D>>
HWY_INLINE auto SumOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(D()) > 4) {
    const hn::Half<D> half;
    return SumOfBlocks(half,
                       hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    (void)d;
    return v;
  }
}
#endif

// to[r] = scale * (sum of the lanes of v[r]) for kRows vectors, of four.
template <int kRows>
HWY_INLINE void StoreSums(const DecodeVec* v, float scale, float* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int r = 0; r < kRows; ++r) to[r] = scale * hn::GetLane(v[r]);
#else
  const DecodeTag d;
  const auto fold = [](DecodeTag tag, DecodeVec a, DecodeVec b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(tag, a, b),
                   hn::InterleaveUpper(tag, a, b));
  };
  const DecodeVec v1 = v[kRows > 1 ? 1 : 0];
  const DecodeVec v2 = v[kRows > 2 ? 2 : 0];
  const DecodeVec v3 = kRows > 3 ? v[3] : v1;
  const DecodeVec sums = fold(d, fold(d, v[0], v2), fold(d, v1, v3));
  const hn::FixedTag<float, 4> d4;
  hn::Store(hn::Mul(SumOfBlocks(d, sums), hn::Set(d4, scale)), d4, to);
#endif
}

inline constexpr int kKeysOfScores = 4;  // scores that are stored at once

// to[r][i] = from[i][r] for kRows rows of S.
template <int kRows>
HWY_INLINE void StoreScores(const float (*from)[4], float* to) {
  const hn::CappedTag<float, kKeysOfScores> d;
  for (int i = 0; i < kKeysOfScores; i += static_cast<int>(hn::Lanes(d))) {
    hn::Vec<decltype(d)> r0, r1, r2, r3;
    hn::LoadInterleaved4(d, from[i], r0, r1, r2, r3);
    hn::StoreU(r0, d, to + i);
    if (kRows > 1) hn::StoreU(r1, d, to + i + kDecodeBlock);
    if (kRows > 2) hn::StoreU(r2, d, to + i + 2 * kDecodeBlock);
    if (kRows > 3) hn::StoreU(r3, d, to + i + 3 * kDecodeBlock);
  }
}

// One key and kRows rows of Q. The first kUnrolled vectors of the key have
// loads of their own: each strides evenly through K, by one row, which is what
// processors foresee. Beside them the row at `fetched` is fetched, if asked.
template <class Type, int kRows, int kUnrolled>
HWY_INLINE void DecodeScoreKey(const DecodeScoresArgs& a, const float* q,
                               const typename Type::Stored* k,
                               const char* fetched, bool fetch, float* to) {
  using Stored = typename Type::Stored;
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  DecodeVec sums[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sums[r] = hn::Zero(d);
  const auto add = [&](DecodeVec key, int64_t c) HWY_ATTR {
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      sums[r] = hn::MulAdd(hn::LoadU(d, q + r * a.q_pitch + c), key, sums[r]);
    }
  };
#pragma GCC unroll 8
  for (int u = 0; u < kUnrolled; ++u) {
    if (fetch) FetchElement<Stored>(fetched, u * lanes);
    add(LoadFloats<Type>(d, k + u * lanes), u * lanes);
  }
  int64_t c = kUnrolled * lanes;
  for (; c + lanes <= a.head_dim; c += lanes) {
    if (fetch) FetchElement<Stored>(fetched, c);
    add(LoadFloats<Type>(d, k + c), c);
  }
  if (c < a.head_dim) {
    add(LoadSomeFloats<Type>(d, k + c, a.head_dim - c), c);
  }
  StoreSums<kRows>(sums, a.scale, to);
}

template <class Type, int kRows>
void DecodeScoresOf(const DecodeScoresArgs& a, bool fetch) {
  using Stored = typename Type::Stored;
  const int64_t lanes = hn::Lanes(DecodeTag());
  const RowsAhead ahead(a.k, a.head_dim, a.k_pitch, sizeof(Stored));
  const auto keys = [&](auto unrolled) HWY_ATTR {
    HWY_ALIGN float of_key[kKeysOfScores][4] = {};
    const auto* k = static_cast<const Stored*>(a.k);
    for (int n = 0; n < a.num_keys; n += kKeysOfScores) {
      if (fetch) ahead.FetchPages<kKeysOfScores>(n);
      const int count = std::min(kKeysOfScores, a.num_keys - n);
      // Unrolled, the loads of a key would stride by four rows.
#pragma GCC unroll 1
      for (int i = 0; i < count; ++i, k += a.k_pitch) {
        DecodeScoreKey<Type, kRows, decltype(unrolled)::value>(
            a, a.q, k, ahead.Of(n + i), fetch, of_key[i]);
      }
      StoreScores<kRows>(of_key, a.s + n);
    }
  };
  if (a.head_dim >= 8 * lanes) return keys(std::integral_constant<int, 8>());
  if (a.head_dim >= 4 * lanes) return keys(std::integral_constant<int, 4>());
  keys(std::integral_constant<int, 0>());
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

// Keys that all slices of O take before the next ones, an even number: few, so
// that V is in the first cache for all slices but the first.
inline constexpr int kKeysOfSlice = 8;
inline constexpr int64_t kMaxValueDims = 256;

// kVecs vectors of dims of one key, `count` of which the last one has, for
// kRows rows of O.
template <class Type, int kRows, int kVecs, Purity kPurity>
HWY_INLINE void DecodeAddKey(const DecodeValuesArgs& a,
                             const typename Type::Stored* row, int64_t count,
                             int key, DecodeVec (*o)[kVecs]) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  DecodeVec values[kVecs];
#pragma GCC unroll 4
  for (int v = 0; v < kVecs; ++v) {
    values[v] = LoadValues<Type, kPurity>(d, row + v * lanes, count);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const DecodeVec p = hn::Set(d, a.p[r * kDecodeBlock + key]);
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) o[r][v] = hn::MulAdd(p, values[v], o[r][v]);
  }
}

// Adds keys [begin, end) to kVecs vectors of dims from `first` on. For each
// pair of keys it fetches kVecs vectors at `fetched` and as many `second` bytes
// behind; those of the next pair lie `step` bytes behind. `sums` is
// [kRows][kMaxValueDims].
template <class Type, int kRows, int kVecs, Purity kPurity>
HWY_INLINE void DecodeSlice(const DecodeValuesArgs& a, int64_t first, int begin,
                            int end, const char* fetched, int64_t second,
                            int64_t step, float* sums) {
  using Stored = typename Type::Stored;
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  // Only the last vector of a row can be a part.
  const int64_t count = kVecs == 1 ? a.head_dim_v - first : lanes;
  DecodeVec o[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      o[r][v] = hn::Load(d, sums + r * kMaxValueDims + first + v * lanes);
    }
  }
  const auto* row = static_cast<const Stored*>(a.v) + begin * a.v_pitch + first;
  for (int n = begin; n < end; n += 2, fetched += step) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) FetchElement<Stored>(fetched, v * lanes);
    DecodeAddKey<Type, kRows, kVecs, kPurity>(a, row, count, n, o);
    row += a.v_pitch;
    if (n + 1 == end) break;
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      FetchElement<Stored>(fetched + second, v * lanes);
    }
    DecodeAddKey<Type, kRows, kVecs, kPurity>(a, row, count, n + 1, o);
    row += a.v_pitch;
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      hn::Store(o[r][v], d, sums + r * kMaxValueDims + first + v * lanes);
    }
  }
}

template <class Type, int kRows, Purity kPurity>
HWY_INLINE void DecodeSums(const DecodeValuesArgs& a, float* sums) {
  constexpr int64_t kSize = sizeof(typename Type::Stored);
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int r = 0; r < kRows; ++r) {
    const auto alpha = hn::Set(d, a.alpha[r]);
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      hn::Store(hn::Mul(hn::LoadU(d, a.o + r * a.o_pitch + c), alpha), d,
                sums + r * kMaxValueDims + c);
    }
  }
  const RowsAhead ahead(a.v, a.head_dim_v, a.v_pitch, kSize);
  const int64_t pitch = ahead.pitch_bytes();
  for (int n = 0; n < a.num_keys; n += kKeysOfSlice) {
    const int end = std::min(n + kKeysOfSlice, a.num_keys);
    const char* const at = ahead.Of(n);
    ahead.FetchPages<kKeysOfSlice>(n);
    int64_t c = 0;
    if (a.head_dim_v >= 8 * lanes) {
      // Loads of their own, as for K. Each half fetches half of the keys, whole
      // rows in order.
      DecodeSlice<Type, kRows, 4, kPurity>(a, 0, n, end, at, 4 * lanes * kSize,
                                           pitch, sums);
      DecodeSlice<Type, kRows, 4, kPurity>(a, 4 * lanes, n, end,
                                           at + kKeysOfSlice / 2 * pitch,
                                           4 * lanes * kSize, pitch, sums);
      c = 8 * lanes;
    }
    for (; c + 4 * lanes <= a.head_dim_v; c += 4 * lanes) {
      DecodeSlice<Type, kRows, 4, kPurity>(a, c, n, end, at + c * kSize, pitch,
                                           2 * pitch, sums);
    }
    for (; c < a.head_dim_v; c += lanes) {
      DecodeSlice<Type, kRows, 1, kPurity>(a, c, n, end, at + c * kSize, pitch,
                                           2 * pitch, sums);
    }
  }
}

template <class Type, int kRows>
bool DecodeValuesOf(const DecodeValuesArgs& a) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  HWY_ALIGN float sums[kRows * kMaxValueDims];
  DecodeSums<Type, kRows, Purity::kAsIs>(a, sums);
  const auto zero = hn::Zero(d);
  auto poison = zero;
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      poison =
          hn::MulAdd(hn::Load(d, sums + r * kMaxValueDims + c), zero, poison);
    }
  }
  const bool finite = hn::AllTrue(d, hn::Eq(poison, zero));
  if (!finite) DecodeSums<Type, kRows, Purity::kFiniteOnly>(a, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      hn::StoreU(hn::Load(d, sums + r * kMaxValueDims + c), d,
                 a.o + r * a.o_pitch + c);
    }
  }
  return finite;
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
