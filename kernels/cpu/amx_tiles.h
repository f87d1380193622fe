// The eight tile registers of AMX, 16 rows of 64 bytes each, and what is done
// with them: by the instructions, or (EmulatedAmxTiles) in plain C++, so that
// everything built on them also runs where there is no AMX. Both have the same
// functions and round alike; where a partial sum is nearly subnormal (2^-123
// was seen) their last bits may differ.
//
// Thread safety: each thread has tiles of its own. Between Configure and
// Release no other code of the thread may use them.
#pragma once

#include <cstdint>

namespace attendant::kernels::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int kTileBytes = 64;  // of one row

// How LDTILECFG wants the shapes: palette 1, all eight tiles whole.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);

#if defined(__x86_64__)
// Only to be called where AmxBf16Available() is true. By assembler: the
// compiler's own wrappers do not tell it that a tile's load reads memory, so
// that it may move a store behind it.
struct AmxTiles {
  static void Configure() {
    static constexpr TileConfiguration kConfiguration;
    asm volatile("ldtilecfg %0" : : "m"(kConfiguration));
  }
  // Back to the initial state, which costs nothing at a change of threads.
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // 16 rows of 64 bytes, `pitch` bytes apart.
  template <int kTile>
  static void Load(const void* from, int64_t pitch) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(from), "r"(pitch), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* to, int64_t pitch) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(to), "r"(pitch), "i"(kTile)
                 : "memory");
  }
  // sum[m][n] += sum over k of a[m][k] * b[k / 2][n][k % 2]: a and b hold bf16,
  // 32 in a row of a, 16 pairs in a row of b; sum holds floats. Even and odd k
  // are summed apart, then added; subnormal numbers count as 0.
  template <int kSum, int kA, int kB>
  static void Dot() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 :
                 : "i"(kSum), "i"(kA), "i"(kB));
  }
};
#endif

struct EmulatedAmxTiles {
  static void Configure();
  static void Release();
  template <int kTile>
  static void Zero() {
    Zero(kTile);
  }
  template <int kTile>
  static void Load(const void* from, int64_t pitch) {
    Load(kTile, from, pitch);
  }
  template <int kTile>
  static void Store(void* to, int64_t pitch) {
    Store(kTile, to, pitch);
  }
  template <int kSum, int kA, int kB>
  static void Dot() {
    Dot(kSum, kA, kB);
  }

 private:
  static void Zero(int tile);
  static void Load(int tile, const void* from, int64_t pitch);
  static void Store(int tile, void* to, int64_t pitch);
  static void Dot(int sum, int a, int b);
};

}  // namespace attendant::kernels::cpu
