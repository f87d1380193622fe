#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/base/check.h"
#include "kernels/base/data_type.h"
#include "kernels/cpu/amx_tiles.h"

namespace attendant::kernels::cpu {
namespace {

constexpr int kNumTiles = 8;
constexpr int kFloats = kTileBytes / sizeof(float);

struct Tiles {
  bool configured = false;
  alignas(64) unsigned char bytes[kNumTiles][kTileRows][kTileBytes];
};

Tiles& ThreadTiles() {
  static thread_local Tiles tiles;
  return tiles;
}

Tiles& ConfiguredTiles() {
  Tiles& tiles = ThreadTiles();
  ATTENDANT_CHECK(tiles.configured);
  return tiles;
}

float WithoutSubnormals(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.f, x)
                                                         : x;
}

float Widened(uint16_t bf16) {
  return WithoutSubnormals(BFloat16ToFloat(bf16));
}

// sums[n] += a * b[n]: a product of two bf16 numbers is a float without
// rounding, so this is what a fused multiply-add gives.
void AddProducts(float a, const float* b, float* sums) {
  for (int n = 0; n < kFloats; ++n) {
    sums[n] = WithoutSubnormals(sums[n] + WithoutSubnormals(a * b[n]));
  }
}

}  // namespace

void EmulatedAmxTiles::Configure() {
  ThreadTiles().configured = true;
  std::memset(ThreadTiles().bytes, 0, sizeof(ThreadTiles().bytes));
}

void EmulatedAmxTiles::Release() { ThreadTiles().configured = false; }

void EmulatedAmxTiles::Zero(int tile) {
  std::memset(ConfiguredTiles().bytes[tile], 0, kTileRows * kTileBytes);
}

void EmulatedAmxTiles::Load(int tile, const void* from, int64_t pitch) {
  Tiles& tiles = ConfiguredTiles();
  for (int row = 0; row < kTileRows; ++row) {
    std::memcpy(tiles.bytes[tile][row],
                static_cast<const char*>(from) + row * pitch, kTileBytes);
  }
}

void EmulatedAmxTiles::Store(int tile, void* to, int64_t pitch) {
  const Tiles& tiles = ConfiguredTiles();
  for (int row = 0; row < kTileRows; ++row) {
    std::memcpy(static_cast<char*>(to) + row * pitch, tiles.bytes[tile][row],
                kTileBytes);
  }
}

void EmulatedAmxTiles::Dot(int sum, int a, int b) {
  Tiles& tiles = ConfiguredTiles();
  float right[kTileRows][2][kFloats];  // b as floats, even and odd k apart
  for (int k = 0; k < kTileRows; ++k) {
    uint16_t pairs[2 * kFloats];
    std::memcpy(pairs, tiles.bytes[b][k], kTileBytes);
    for (int n = 0; n < kFloats; ++n) {
      right[k][0][n] = Widened(pairs[2 * n]);
      right[k][1][n] = Widened(pairs[2 * n + 1]);
    }
  }
  for (int m = 0; m < kTileRows; ++m) {
    uint16_t left[2 * kTileRows];
    std::memcpy(left, tiles.bytes[a][m], kTileBytes);
    float even[kFloats] = {}, odd[kFloats] = {}, total[kFloats];
    for (int k = 0; k < kTileRows; ++k) {
      AddProducts(Widened(left[2 * k]), right[k][0], even);
      AddProducts(Widened(left[2 * k + 1]), right[k][1], odd);
    }
    std::memcpy(total, tiles.bytes[sum][m], kTileBytes);
    for (int n = 0; n < kFloats; ++n) {
      total[n] = WithoutSubnormals(WithoutSubnormals(total[n]) +
                                   WithoutSubnormals(even[n] + odd[n]));
    }
    std::memcpy(tiles.bytes[sum][m], total, kTileBytes);
  }
}

}  // namespace attendant::kernels::cpu
