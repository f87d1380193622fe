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
#include "kernels/cpu/decode_softmax-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Bytes between the row that is worked on and the one that is fetched: what
// memory delivers in its latency.
inline constexpr int64_t kPrefetchBytes = 8192;

// The same in whole rows, of which those of other heads may lie between.
template <class Type>
HWY_INLINE int64_t PrefetchDistance(int64_t size, int64_t pitch) {
  const int64_t bytes = size * sizeof(typename Type::Stored);
  const int64_t keys =
      std::clamp<int64_t>(kPrefetchBytes / bytes, 4, kDecodeBlock);
  return keys * pitch * sizeof(typename Type::Stored);
}

// Fetches what lies `bytes` behind `from` (maybe behind the end: a prefetch
// never faults), once for each line of 64 bytes of a row; `c` is the place in
// the row. Spread over the arithmetic: some processors drop prefetches that
// come faster than memory answers.
template <class Stored>
HWY_INLINE void PrefetchAhead(const Stored* from, int64_t c, int64_t bytes) {
  if (bytes == 0 || c * sizeof(Stored) % 64 != 0) return;
  hwy::Prefetch(reinterpret_cast<const char*>(
      reinterpret_cast<uintptr_t>(from + c) + bytes));
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

// to[i] = scale * (sum of the lanes of v[i]) for four vectors.
HWY_INLINE void StoreSums(const DecodeVec* v, float scale, float* to) {
  const DecodeTag d;
#if HWY_TARGET == HWY_SCALAR
  for (int i = 0; i < 4; ++i) to[i] = scale * hn::GetLane(v[i]);
  (void)d;
#else
  const auto fold = [](DecodeTag tag, DecodeVec a, DecodeVec b) HWY_ATTR {
    return hn::Add(hn::InterleaveLower(tag, a, b),
                   hn::InterleaveUpper(tag, a, b));
  };
  const DecodeVec sums = fold(d, fold(d, v[0], v[2]), fold(d, v[1], v[3]));
  const hn::FixedTag<float, 4> d4;
  hn::StoreU(hn::Mul(SumOfBlocks(d, sums), hn::Set(d4, scale)), d4, to);
#endif
}

inline constexpr int kKeysOfScores = 4;  // at once

// The dims of one vector, from c on, of 4 keys and kRows rows of Q; fetches the
// same dims `ahead` bytes from here.
template <class Type, int kRows>
HWY_INLINE void ScoreDims(const DecodeScoresArgs& a,
                          const typename Type::Stored* const* k, int64_t c,
                          int64_t ahead, DecodeVec (*sums)[kKeysOfScores]) {
  const DecodeTag d;
  DecodeVec keys[kKeysOfScores];
#pragma GCC unroll 4
  for (int i = 0; i < kKeysOfScores; ++i) {
    keys[i] = LoadFloats<Type>(d, k[i] + c);
    PrefetchAhead(k[i], c, ahead);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const DecodeVec q = hn::LoadU(d, a.q + r * a.q_pitch + c);
#pragma GCC unroll 4
    for (int i = 0; i < kKeysOfScores; ++i) {
      sums[r][i] = hn::MulAdd(q, keys[i], sums[r][i]);
    }
  }
}

// The first kUnrolled vectors of a row have loads of their own: each strides
// evenly through K, which is what processors foresee.
template <class Type, int kRows, int kUnrolled>
HWY_INLINE void DecodeScoreKeys(const DecodeScoresArgs& a, int first,
                                int64_t ahead) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  const typename Type::Stored* k[kKeysOfScores];
  DecodeVec sums[kRows][kKeysOfScores];
#pragma GCC unroll 4
  for (int i = 0; i < kKeysOfScores; ++i) {
    k[i] = static_cast<const typename Type::Stored*>(a.k) +
           std::min(first + i, a.num_keys - 1) * a.k_pitch;
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) sums[r][i] = hn::Zero(d);
  }
#pragma GCC unroll 8
  for (int u = 0; u < kUnrolled; ++u) {
    ScoreDims<Type, kRows>(a, k, u * lanes, ahead, sums);
  }
  int64_t c = kUnrolled * lanes;
  for (; c + lanes <= a.head_dim; c += lanes) {
    ScoreDims<Type, kRows>(a, k, c, ahead, sums);
  }
  if (c < a.head_dim) {
    for (int i = 0; i < kKeysOfScores; ++i) {
      const DecodeVec key = LoadSomeFloats<Type>(d, k[i] + c, a.head_dim - c);
      for (int r = 0; r < kRows; ++r) {
        const DecodeVec q = hn::LoadU(d, a.q + r * a.q_pitch + c);
        sums[r][i] = hn::MulAdd(q, key, sums[r][i]);
      }
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    StoreSums(sums[r], a.scale, a.s + r * kDecodeBlock + first);
  }
}

template <class Type, int kRows>
void DecodeScoresOf(const DecodeScoresArgs& a, bool prefetch) {
  const int64_t lanes = hn::Lanes(DecodeTag());
  const int64_t ahead =
      prefetch ? PrefetchDistance<Type>(a.head_dim, a.k_pitch) : 0;
  const auto keys = [&](auto unrolled) HWY_ATTR {
    for (int n = 0; n < a.num_keys; n += kKeysOfScores) {
      DecodeScoreKeys<Type, kRows, decltype(unrolled)::value>(a, n, ahead);
    }
  };
  if (a.head_dim >= 8 * lanes) return keys(std::integral_constant<int, 8>());
  if (a.head_dim >= 4 * lanes) return keys(std::integral_constant<int, 4>());
  keys(std::integral_constant<int, 0>());
}

// Up to four rows at once: what fits in registers.
template <class Type>
void DecodeScoresOfType(DecodeScoresArgs a) {
  bool prefetch = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        DecodeScoresOf<Type, 1>(a, prefetch);
        break;
      case 2:
        DecodeScoresOf<Type, 2>(a, prefetch);
        break;
      case 3:
        DecodeScoresOf<Type, 3>(a, prefetch);
        break;
      default:
        DecodeScoresOf<Type, 4>(a, prefetch);
    }
    prefetch = false;
    a.rows -= rows;
    a.q += rows * a.q_pitch;
    a.s += rows * kDecodeBlock;
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

// Keys that all slices of O take before the next ones: few, so that V is in the
// first cache for all slices but the first, and memory never waits for them.
inline constexpr int kKeysOfSlice = 16;
inline constexpr int64_t kMaxValueDims = 256;

// Adds keys [begin, end) to kVecs vectors of dims from `first` on, and fetches
// the same dims `ahead` bytes from here; `sums` is [kRows][kMaxValueDims].
template <class Type, int kRows, int kVecs, Purity kPurity>
HWY_INLINE void DecodeSlice(const DecodeValuesArgs& a, int64_t first, int begin,
                            int end, int64_t ahead, float* sums) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  DecodeVec o[kRows][kVecs];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      o[r][v] = hn::Load(d, sums + r * kMaxValueDims + first + v * lanes);
    }
  }
  const auto* row = static_cast<const typename Type::Stored*>(a.v) +
                    begin * a.v_pitch + first;
  for (int n = begin; n < end; ++n, row += a.v_pitch) {
    DecodeVec values[kVecs];
#pragma GCC unroll 4
    for (int v = 0; v < kVecs; ++v) {
      // Only the last vector of a row can be a part.
      const int64_t count =
          kVecs == 1 ? a.head_dim_v - first : static_cast<int64_t>(lanes);
      values[v] = LoadValues<Type, kPurity>(d, row + v * lanes, count);
      PrefetchAhead(row - first, first + v * lanes, ahead);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const DecodeVec p = hn::Set(d, a.p[r * kDecodeBlock + n]);
#pragma GCC unroll 4
      for (int v = 0; v < kVecs; ++v) {
        o[r][v] = hn::MulAdd(p, values[v], o[r][v]);
      }
    }
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
HWY_INLINE void DecodeSums(const DecodeValuesArgs& a, bool prefetch,
                           float* sums) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  const int64_t ahead =
      prefetch ? PrefetchDistance<Type>(a.head_dim_v, a.v_pitch) : 0;
  for (int r = 0; r < kRows; ++r) {
    const auto alpha = hn::Set(d, a.alpha[r]);
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      hn::Store(hn::Mul(hn::LoadU(d, a.o + r * a.o_pitch + c), alpha), d,
                sums + r * kMaxValueDims + c);
    }
  }
  for (int n = 0; n < a.num_keys; n += kKeysOfSlice) {
    const int end = std::min(n + kKeysOfSlice, a.num_keys);
    int64_t c = 0;
    if (a.head_dim_v >= 8 * lanes) {  // loads of their own, as for K
      DecodeSlice<Type, kRows, 4, kPurity>(a, 0, n, end, ahead, sums);
      DecodeSlice<Type, kRows, 4, kPurity>(a, 4 * lanes, n, end, ahead, sums);
      c = 8 * lanes;
    }
    for (; c + 4 * lanes <= a.head_dim_v; c += 4 * lanes) {
      DecodeSlice<Type, kRows, 4, kPurity>(a, c, n, end, ahead, sums);
    }
    for (; c < a.head_dim_v; c += lanes) {
      DecodeSlice<Type, kRows, 1, kPurity>(a, c, n, end, ahead, sums);
    }
  }
}

template <class Type, int kRows>
bool DecodeValuesOf(const DecodeValuesArgs& a, bool prefetch) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  HWY_ALIGN float sums[kRows * kMaxValueDims];
  DecodeSums<Type, kRows, Purity::kAsIs>(a, prefetch, sums);
  const auto zero = hn::Zero(d);
  auto poison = zero;
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      poison =
          hn::MulAdd(hn::Load(d, sums + r * kMaxValueDims + c), zero, poison);
    }
  }
  const bool finite = hn::AllTrue(d, hn::Eq(poison, zero));
  if (!finite) DecodeSums<Type, kRows, Purity::kFiniteOnly>(a, false, sums);
  for (int r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      hn::StoreU(hn::Load(d, sums + r * kMaxValueDims + c), d,
                 a.o + r * a.o_pitch + c);
    }
  }
  return finite;
}

template <class Type>
bool DecodeValuesOfType(DecodeValuesArgs a) {
  bool finite = true, prefetch = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        finite &= DecodeValuesOf<Type, 1>(a, prefetch);
        break;
      case 2:
        finite &= DecodeValuesOf<Type, 2>(a, prefetch);
        break;
      case 3:
        finite &= DecodeValuesOf<Type, 3>(a, prefetch);
        break;
      default:
        finite &= DecodeValuesOf<Type, 4>(a, prefetch);
    }
    prefetch = false;
    a.rows -= rows;
    a.p += rows * kDecodeBlock;
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
