// Tiles of AMX: what each operation does, by definition; on a machine that has
// them, the instructions against their emulation, bit for bit.
#include "kernels/cpu/amx.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/data_type.h"
#include "kernels/cpu/amx_tiles.h"
#include "tests/testing/random.h"

namespace attendant::kernels::cpu {
namespace {

constexpr int64_t kPitch = 80;  // bytes: rows that are not side by side
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

struct Operands {
  std::vector<uint16_t> a, b;  // 16 rows of 32, kPitch apart
  std::vector<float> sum;      // 16 rows of 16, side by side
};

Operands RandomOperands(int64_t seed) {
  testing::RandomBits bits(seed);
  Operands operands;
  for (auto* tile : {&operands.a, &operands.b}) {
    for (int i = 0; i < 16 * kPitch / 2; ++i) {
      const float value = static_cast<float>(bits.Below(20001)) / 1e4f - 1;
      tile->push_back(FloatToBFloat16(value));
    }
  }
  for (int i = 0; i < 256; ++i) {
    operands.sum.push_back(static_cast<float>(bits.Below(1000)) / 7);
  }
  return operands;
}

template <class Tiles>
std::vector<float> DotTwice(const Operands& operands) {
  std::vector<float> sum(256);
  Tiles::Configure();
  Tiles::template Load<0>(operands.sum.data(), 64);
  Tiles::template Load<3>(operands.a.data(), kPitch);
  Tiles::template Load<7>(operands.b.data(), kPitch);
  Tiles::template Dot<0, 3, 7>();
  Tiles::template Dot<0, 3, 7>();
  Tiles::template Store<0>(sum.data(), 64);
  Tiles::Release();
  return sum;
}

TEST(EmulatedAmxTest, DotIsTheProductOfPairs) {
  const Operands operands = RandomOperands(1);
  const std::vector<float> sum = DotTwice<EmulatedAmxTiles>(operands);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      double exact = operands.sum[m * 16 + n];
      for (int k = 0; k < 32; ++k) {
        exact += 2.0 * BFloat16ToFloat(operands.a[m * 40 + k]) *
                 BFloat16ToFloat(operands.b[k / 2 * 40 + 2 * n + k % 2]);
      }
      ASSERT_NEAR(sum[m * 16 + n], exact, 1e-4);
    }
  }
}

TEST(EmulatedAmxTest, EvenAndOddAreSummedApartAndSubnormalsCountAsZero) {
  Operands operands;
  operands.a.assign(16 * kPitch / 2, 0);
  operands.b.assign(16 * kPitch / 2, 0);
  operands.sum.assign(256, 0.0f);
  // In one chain, 2^24 + 1 + 1 would lose both ones; apart, -2^24 is odd.
  const float left[6] = {16777216.0f, 1.0f, 1.0f, -16777216.0f, 1.0f, 0.0f};
  for (int k = 0; k < 6; ++k) {
    operands.a[k] = FloatToBFloat16(left[k]);
    operands.b[k / 2 * 40 + k % 2] = FloatToBFloat16(1.0f);
  }
  operands.a[40] = 1;  // the smallest subnormal number
  operands.b[0 * 40 + 3] = operands.b[0 * 40 + 2] = FloatToBFloat16(0x1p100f);
  std::vector<float> sum = DotTwice<EmulatedAmxTiles>(operands);
  // Even: 2^24 + 1 + 1 = 2^24 (ties to even, twice); odd: 1 - 2^24.
  EXPECT_EQ(sum[0], 2.0f);
  EXPECT_EQ(sum[16 + 1], 0.0f);
  operands.a[80] = FloatToBFloat16(kNaN);
  sum = DotTwice<EmulatedAmxTiles>(operands);
  for (int n = 0; n < 16; ++n) EXPECT_TRUE(std::isnan(sum[32 + n]));
  EXPECT_EQ(sum[0], 2.0f);
}

TEST(EmulatedAmxDeathTest, TilesAreNotUsedOutsideConfigureAndRelease) {
  float floats[256];
  EXPECT_DEATH(EmulatedAmxTiles::Load<0>(floats, 64), "configured");
}

#ifdef __x86_64__
TEST(AmxTest, InstructionsRoundAsTheirEmulation) {
  if (!AmxBf16Available()) GTEST_SKIP() << "this machine has no AMX";
  for (int64_t seed = 0; seed < 200; ++seed) {
    Operands operands = RandomOperands(seed);
    if (seed % 2 == 1) {
      operands.a[40 * (seed % 16)] = FloatToBFloat16(kNaN);
      operands.b[2 * (seed % 16)] =
          FloatToBFloat16(std::numeric_limits<float>::infinity());
    }
    const std::vector<float> expected = DotTwice<EmulatedAmxTiles>(operands);
    const std::vector<float> sum = DotTwice<AmxTiles>(operands);
    for (int i = 0; i < 256; ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(sum[i])) << seed << " " << i;
      } else {
        ASSERT_EQ(sum[i], expected[i]) << seed << " " << i;
      }
    }
  }
}
#endif

}  // namespace
}  // namespace attendant::kernels::cpu
