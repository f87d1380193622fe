// Scores and values of the decode form for any number of rows, and of several
// KV heads that lie side by side (fp32). Included once for each instruction
// set.
#if defined(ATTENDANT_KERNELS_CPU_DECODE_HEADS_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_DECODE_HEADS_INL_H_
#undef ATTENDANT_KERNELS_CPU_DECODE_HEADS_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_DECODE_HEADS_INL_H_
#endif

#include <algorithm>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/convert-inl.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/decode_fetch.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Key by key, and all heads of a key: memory is read in its order, each load
// strides by one head's row. Each head's operations are those of one alone.
template <class Type, int kRows>
void DecodeScoresOfHeads(const DecodeScoresArgs& a, bool fetch) {
  using Stored = typename Type::Stored;
  const int64_t lanes = hn::Lanes(DecodeTag());
  const int64_t ahead = BytesAheadOfHeads(
      a.head_dim * sizeof(Stored), a.heads.count, a.k_pitch * sizeof(Stored));
  const auto keys = [&](auto unrolled) HWY_ATTR {
    HWY_ALIGN float of_key[kMaxDecodeHeads][kKeysOfScores][4] = {};
    const auto* k = static_cast<const Stored*>(a.k);
    for (int n = 0; n < a.num_keys; n += kKeysOfScores) {
      const int count = std::min(kKeysOfScores, a.num_keys - n);
#pragma GCC unroll 1
      for (int i = 0; i < count; ++i, k += a.k_pitch) {
        const Stored* key = k;
        const float* q = a.q;
#pragma GCC unroll 1
        for (int h = 0; h < a.heads.count; ++h) {
          DecodeScoreKey<Type, kRows, decltype(unrolled)::value>(
              a, q, key, BytesBehind(key, ahead), fetch, of_key[h][i]);
          key += a.heads.kv_pitch;
          q += a.heads.pitch;
        }
      }
      for (int h = 0; h < a.heads.count; ++h) {
        StoreScores<kRows>(of_key[h], a.s + h * a.heads.pitch + n);
      }
    }
  };
  if (a.head_dim >= 8 * lanes) return keys(std::integral_constant<int, 8>());
  if (a.head_dim >= 4 * lanes) return keys(std::integral_constant<int, 4>());
  keys(std::integral_constant<int, 0>());
}

template <class Type, int kRows>
void DecodeScoresOfRows(const DecodeScoresArgs& a, bool fetch) {
  if constexpr (std::is_same_v<Type, Float32>) {
    if (a.heads.count > 1) return DecodeScoresOfHeads<Type, kRows>(a, fetch);
  }
  DecodeScoresOf<Type, kRows>(a, fetch);
}

// Up to four rows at once: what fits in registers.
template <class Type>
void DecodeScoresOfType(DecodeScoresArgs a) {
  bool fetch = true;  // once: the other rows find K in the caches
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        DecodeScoresOfRows<Type, 1>(a, fetch);
        break;
      case 2:
        DecodeScoresOfRows<Type, 2>(a, fetch);
        break;
      case 3:
        DecodeScoresOfRows<Type, 3>(a, fetch);
        break;
      default:
        DecodeScoresOfRows<Type, 4>(a, fetch);
    }
    fetch = false;
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

// Adds key n of one head to kVecs vectors of dims from `first` on. `sums` is
// [kRows][kMaxValueDims]; what lies `ahead` bytes behind the key is fetched.
template <class Type, int kRows, int kVecs, Purity kPurity>
HWY_INLINE void DecodeAddToSums(const DecodeValuesArgs& a, int64_t first, int n,
                                int64_t ahead, float* sums) {
  using Stored = typename Type::Stored;
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  // Only the last vector of a row can be a part.
  const int64_t count = kVecs == 1 ? a.head_dim_v - first : lanes;
  const auto* row = static_cast<const Stored*>(a.v) + n * a.v_pitch + first;
  DecodeVec values[kVecs];
#pragma GCC unroll 8
  for (int u = 0; u < kVecs; ++u) {
    // Behind a branch, else the compiler issues them all before the loads.
    if (ahead != 0) FetchElement<Stored>(BytesBehind(row, ahead), u * lanes);
    values[u] = LoadValues<Type, kPurity>(d, row + u * lanes, count);
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
    const DecodeVec p = hn::Set(d, a.p[r * kDecodeBlock + n]);
#pragma GCC unroll 8
    for (int u = 0; u < kVecs; ++u) {
      float* const to = sums + r * kMaxValueDims + first + u * lanes;
      hn::Store(hn::MulAdd(p, values[u], hn::Load(d, to)), d, to);
    }
  }
}

// `sums` is [heads][kRows][kMaxValueDims]: in the caches, not in registers, so
// that V is read in the order of memory.
template <class Type, int kRows, Purity kPurity>
HWY_INLINE void DecodeAddHeads(const DecodeValuesArgs& all, float* sums) {
  using Stored = typename Type::Stored;
  const int64_t lanes = hn::Lanes(DecodeTag());
  const int64_t ahead =
      BytesAheadOfHeads(all.head_dim_v * sizeof(Stored), all.heads.count,
                        all.v_pitch * sizeof(Stored));
  for (int n = 0; n < all.num_keys; ++n) {
    DecodeValuesArgs a = all;
    float* of_head = sums;
    for (int h = 0; h < all.heads.count; ++h) {
      int64_t c = 0;
      for (; c + 8 * lanes <= a.head_dim_v; c += 8 * lanes) {
        DecodeAddToSums<Type, kRows, 8, kPurity>(a, c, n, ahead, of_head);
      }
      for (; c < a.head_dim_v; c += lanes) {
        DecodeAddToSums<Type, kRows, 1, kPurity>(a, c, n, ahead, of_head);
      }
      a.v = static_cast<const Stored*>(a.v) + a.heads.kv_pitch;
      a.p += a.heads.pitch;
      of_head += kRows * kMaxValueDims;
    }
  }
}

// sums = alpha * O.
template <int kRows>
HWY_INLINE void LoadSumsOfHeads(const DecodeValuesArgs& a, float* sums) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int h = 0; h < a.heads.count; ++h) {
    for (int r = 0; r < kRows; ++r, sums += kMaxValueDims) {
      const auto alpha = hn::Set(d, a.alpha[h * a.heads.pitch + r]);
      const float* const o = a.o + h * a.heads.pitch + r * a.o_pitch;
      for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
        hn::Store(hn::Mul(hn::LoadU(d, o + c), alpha), d, sums + c);
      }
    }
  }
}

// O = sums.
template <int kRows>
HWY_INLINE void StoreSumsOfHeads(const DecodeValuesArgs& a, const float* sums) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int h = 0; h < a.heads.count; ++h) {
    for (int r = 0; r < kRows; ++r, sums += kMaxValueDims) {
      float* const o = a.o + h * a.heads.pitch + r * a.o_pitch;
      for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
        hn::StoreU(hn::Load(d, sums + c), d, o + c);
      }
    }
  }
}

template <class Type, int kRows>
bool DecodeValuesOfHeads(const DecodeValuesArgs& a) {
  const DecodeTag d;
  const int64_t lanes = hn::Lanes(d);
  HWY_ALIGN float sums[kMaxDecodeHeads * kRows * kMaxValueDims];
  LoadSumsOfHeads<kRows>(a, sums);
  DecodeAddHeads<Type, kRows, Purity::kAsIs>(a, sums);
  const auto zero = hn::Zero(d);
  auto poison = zero;
  for (int r = 0; r < a.heads.count * kRows; ++r) {
    for (int64_t c = 0; c < a.head_dim_v; c += lanes) {
      poison =
          hn::MulAdd(hn::Load(d, sums + r * kMaxValueDims + c), zero, poison);
    }
  }
  const bool finite = hn::AllTrue(d, hn::Eq(poison, zero));
  if (!finite) {
    LoadSumsOfHeads<kRows>(a, sums);
    DecodeAddHeads<Type, kRows, Purity::kFiniteOnly>(a, sums);
  }
  StoreSumsOfHeads<kRows>(a, sums);
  return finite;
}

template <class Type, int kRows>
bool DecodeValuesOfRows(const DecodeValuesArgs& a) {
  if constexpr (std::is_same_v<Type, Float32>) {
    if (a.heads.count > 1) return DecodeValuesOfHeads<Type, kRows>(a);
  }
  return DecodeValuesOf<Type, kRows>(a);
}

template <class Type>
bool DecodeValuesOfType(DecodeValuesArgs a) {
  bool finite = true;
  while (a.rows > 0) {
    const int rows = std::min(a.rows, 4);
    switch (rows) {
      case 1:
        finite &= DecodeValuesOfRows<Type, 1>(a);
        break;
      case 2:
        finite &= DecodeValuesOfRows<Type, 2>(a);
        break;
      case 3:
        finite &= DecodeValuesOfRows<Type, 3>(a);
        break;
      default:
        finite &= DecodeValuesOfRows<Type, 4>(a);
    }
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
