// V for AMX: transposed tiles of 16 dims of 32 keys, one behind the other.
#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"

#define ATTENDANT_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))

namespace attendant::kernels::cpu {
namespace {

constexpr int kDims = kTileRows;
constexpr int kKeys = 32;
constexpr uint16_t kExponent = 0x7f80;

ATTENDANT_AVX512 inline __m128i Load8(const uint16_t* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

// 8 dims of keys i, i + 8, i + 16 and i + 24, a key in each block of 128 bits.
ATTENDANT_AVX512 inline __m512i LoadKeys(const uint16_t* from, int64_t pitch,
                                         int i) {
  from += i * pitch;
  __m512i keys = _mm512_castsi128_si512(Load8(from));
  keys = _mm512_mask_broadcast_i32x4(keys, 0x00f0, Load8(from + 8 * pitch));
  keys = _mm512_mask_broadcast_i32x4(keys, 0x0f00, Load8(from + 16 * pitch));
  return _mm512_mask_broadcast_i32x4(keys, 0xf000, Load8(from + 24 * pitch));
}

// 8 dims of 32 keys, `pitch` apart, to 8 rows of 32 keys: a transpose of 8 x 8
// in each block of 128 bits. `largest` collects the magnitudes.
ATTENDANT_AVX512 inline void Transpose8(const uint16_t* from, int64_t pitch,
                                        uint16_t* to, __m512i* largest) {
  __m512i in[8], pairs[8], fours[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    in[i] = LoadKeys(from, pitch, i);
    const __m512i magnitude =
        _mm512_and_si512(in[i], _mm512_set1_epi16(0x7fff));
    *largest = _mm512_max_epu16(*largest, magnitude);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {  // dims 0 to 3, 4 to 7 of two keys
    pairs[i] = _mm512_unpacklo_epi16(in[i], in[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi16(in[i], in[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {  // two dims each of four keys
    fours[i] = _mm512_unpacklo_epi32(pairs[i], pairs[i + 2]);
    fours[i + 1] = _mm512_unpackhi_epi32(pairs[i], pairs[i + 2]);
    fours[i + 2] = _mm512_unpacklo_epi32(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = _mm512_unpackhi_epi32(pairs[i + 1], pairs[i + 3]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    uint16_t* row = to + 2 * i * kKeys;
    _mm512_storeu_si512(row, _mm512_unpacklo_epi64(fours[i], fours[i + 4]));
    _mm512_storeu_si512(row + kKeys,
                        _mm512_unpackhi_epi64(fours[i], fours[i + 4]));
  }
}

ATTENDANT_AVX512 inline void PackTile(const uint16_t* from, int64_t pitch,
                                      uint16_t* to, __m512i* largest) {
  Transpose8(from, pitch, to, largest);
  Transpose8(from + 8, pitch, to + 8 * kKeys, largest);
}

// A tile of which only some keys and dims exist, or that holds what is not
// finite: through a copy, with 0 in those places.
void CopyFinite(const uint16_t* from, int64_t pitch, int keys, int dims,
                uint16_t* to, bool* finite) {
  std::memset(to, 0, kKeys * kDims * sizeof(uint16_t));
  for (int n = 0; n < keys; ++n) {
    for (int d = 0; d < dims; ++d) {
      const uint16_t value = from[n * pitch + d];
      const bool is_finite = (value & kExponent) != kExponent;
      if (is_finite) to[n * kDims + d] = value;
      *finite &= is_finite;
    }
  }
}

}  // namespace

ATTENDANT_AVX512 bool AmxPackValues(const PackValuesArgs& a) {
  bool finite = true;
  for (int n = 0; n < a.num_padded; n += kKeys) {
    const int keys = std::clamp(a.num_keys - n, 0, kKeys);
    const uint16_t* from = static_cast<const uint16_t*>(a.v) + n * a.v_pitch;
    uint16_t* to = static_cast<uint16_t*>(a.packed) + n * kDims;
    for (int64_t c = 0; c < a.head_dim_v; c += kDims, to += a.panel_pitch) {
      const int dims =
          static_cast<int>(std::min<int64_t>(a.head_dim_v - c, kDims));
      __m512i largest = _mm512_setzero_si512();
      if (keys == kKeys && dims == kDims) {
        PackTile(from + c, a.v_pitch, to, &largest);
        if (_mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(kExponent)) ==
            0) {
          continue;
        }
      }
      alignas(64) uint16_t copy[kKeys * kDims];
      CopyFinite(from + c, a.v_pitch, keys, dims, copy, &finite);
      PackTile(copy, kDims, to, &largest);
    }
  }
  return finite;
}

}  // namespace attendant::kernels::cpu
