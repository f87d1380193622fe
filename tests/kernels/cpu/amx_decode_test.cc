// The decode form's products on AMX: on emulated tiles against double, and on a
// machine that has them the instructions against their emulation, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/data_type.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/amx_tiles.h"
#include "tests/testing/guarded_buffer.h"
#include "tests/testing/random.h"

namespace attendant::kernels::cpu {
namespace {

using attendant::testing::GuardedBuffer;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float Rounded(float x) { return BFloat16ToFloat(FloatToBFloat16(x)); }

struct Shape {
  int rows, keys;
  int64_t dims, pitch;  // elements
};

// K or V in exactly its bytes, Q or P, and O.
struct Operands {
  explicit Operands(const Shape& shape)
      : shape(shape),
        stored(((shape.keys - 1) * shape.pitch + shape.dims) * 2),
        q(kMaxDecodeRows * shape.dims),
        p(kMaxDecodeRows * kDecodeBlock),
        o(kMaxDecodeRows * shape.dims),
        alpha(kMaxDecodeRows) {
    testing::NormalGenerator normal(shape.rows * 1000 + shape.keys);
    for (int n = 0; n < shape.keys; ++n) {
      for (int64_t d = 0; d < shape.dims; ++d) Set(n, d, normal.Next());
    }
    for (float& x : q) x = Rounded(normal.Next());
    for (float& x : o) x = normal.Next();
    for (int r = 0; r < shape.rows; ++r) {
      alpha[r] = 1.0f / static_cast<float>(r + 1);
      for (int n = 0; n < shape.keys; ++n) {
        p[r * kDecodeBlock + n] = std::abs(normal.Next());
      }
    }
    stored.ForbidGuards();
  }
  void Set(int n, int64_t d, float value) {
    const uint16_t bits = FloatToBFloat16(value);
    std::memcpy(stored.data() + (n * shape.pitch + d) * 2, &bits, 2);
  }
  float Get(int n, int64_t d) const {
    uint16_t bits;
    std::memcpy(&bits, stored.data() + (n * shape.pitch + d) * 2, 2);
    return BFloat16ToFloat(bits);
  }

  Shape shape;
  GuardedBuffer stored;
  std::vector<float> q, p, o, alpha;
};

std::vector<float> ScoresOf(void (*scores)(const DecodeScoresArgs&),
                            const Operands& of) {
  std::vector<float> s(kMaxDecodeRows * kDecodeBlock);
  scores({.q = of.q.data(),
          .q_pitch = of.shape.dims,
          .rows = of.shape.rows,
          .k = of.stored.data(),
          .dtype = DataType::kBFloat16,
          .k_pitch = of.shape.pitch,
          .num_keys = of.shape.keys,
          .head_dim = of.shape.dims,
          .scale = 0.25f,
          .s = s.data()});
  return s;
}

std::vector<float> ValuesOf(bool (*values)(const DecodeValuesArgs&),
                            const Operands& of, bool finite = true) {
  std::vector<float> o = of.o;
  EXPECT_EQ(values({.p = of.p.data(),
                    .rows = of.shape.rows,
                    .v = of.stored.data(),
                    .dtype = DataType::kBFloat16,
                    .v_pitch = of.shape.pitch,
                    .num_keys = of.shape.keys,
                    .head_dim_v = of.shape.dims,
                    .alpha = of.alpha.data(),
                    .o = o.data(),
                    .o_pitch = of.shape.dims}),
            finite);
  return o;
}

std::vector<Shape> Shapes() {
  std::vector<Shape> shapes;
  for (int64_t dims : {32, 64, 96, 128, 160, 192, 224, 256}) {
    shapes.push_back({4, 100, dims, dims});
  }
  for (int rows = 1; rows <= kMaxDecodeRows; ++rows) {
    shapes.push_back({rows, 64, 128, 128});
  }
  for (int keys : {1, 15, 16, 17, 31, 33, 48, 511, 512}) {
    shapes.push_back({3, keys, 128, 8 * 128 + 8});
  }
  shapes.push_back({2, 40, 40, 48});  // no multiple of 32: not on tiles
  return shapes;
}

class EmulatedDecodeTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!__builtin_cpu_supports("avx512bf16")) {
      GTEST_SKIP() << "this machine has no AVX-512 BF16";
    }
    EmulatedAmxTiles::Configure();
  }
  void TearDown() override { EmulatedAmxTiles::Release(); }
};

TEST_F(EmulatedDecodeTest, ScoresAreTheScaledProducts) {
  for (const Shape& shape : Shapes()) {
    const Operands of(shape);
    const std::vector<float> s = ScoresOf(EmulatedAmxDecodeScores, of);
    for (int r = 0; r < shape.rows; ++r) {
      for (int n = 0; n < shape.keys; ++n) {
        double exact = 0;
        for (int64_t d = 0; d < shape.dims; ++d) {
          exact += 0.25 * of.q[r * shape.dims + d] * of.Get(n, d);
        }
        ASSERT_NEAR(s[r * kDecodeBlock + n], exact, 2e-5)
            << shape.rows << " " << shape.keys << " " << shape.dims;
      }
    }
  }
}

TEST_F(EmulatedDecodeTest, ValuesAreAddedToWhatShrank) {
  for (const Shape& shape : Shapes()) {
    const Operands of(shape);
    const std::vector<float> o = ValuesOf(EmulatedAmxDecodeValues, of);
    for (int r = 0; r < shape.rows; ++r) {
      for (int64_t d = 0; d < shape.dims; ++d) {
        double exact = double{of.alpha[r]} * of.o[r * shape.dims + d];
        for (int n = 0; n < shape.keys; ++n) {
          exact += double{Rounded(of.p[r * kDecodeBlock + n])} * of.Get(n, d);
        }
        ASSERT_NEAR(o[r * shape.dims + d], exact, 2e-4)
            << shape.rows << " " << shape.keys << " " << shape.dims;
      }
    }
  }
}

TEST_F(EmulatedDecodeTest, ARowsBitsDoNotDependOnTheRowsBesideIt) {
  const Operands of({8, 300, 128, 128});
  const std::vector<float> s = ScoresOf(EmulatedAmxDecodeScores, of);
  const std::vector<float> o = ValuesOf(EmulatedAmxDecodeValues, of);
  Operands alone({8, 300, 128, 128});
  alone.shape.rows = 1;
  std::copy_n(alone.q.begin() + 5 * 128, 128, alone.q.begin());
  std::copy_n(alone.p.begin() + 5 * kDecodeBlock, kDecodeBlock,
              alone.p.begin());
  std::copy_n(alone.o.begin() + 5 * 128, 128, alone.o.begin());
  alone.alpha[0] = alone.alpha[5];
  const std::vector<float> s1 = ScoresOf(EmulatedAmxDecodeScores, alone);
  const std::vector<float> o1 = ValuesOf(EmulatedAmxDecodeValues, alone);
  EXPECT_EQ(std::memcmp(&s[5 * kDecodeBlock], s1.data(), 300 * 4), 0);
  EXPECT_EQ(std::memcmp(&o[5 * 128], o1.data(), 128 * 4), 0);
}

TEST_F(EmulatedDecodeTest, ValuesThatAreNotFiniteCountAsZeroAndAreReported) {
  const Shape shape{4, 70, 64, 64};
  for (float bad : {kInfinity, -kInfinity, kNaN}) {
    for (int key : {3, 69}) {
      Operands zero(shape), of(shape);
      zero.Set(key, 33, 0);
      of.Set(key, 33, bad);
      const std::vector<float> expected =
          ValuesOf(EmulatedAmxDecodeValues, zero);
      const std::vector<float> o = ValuesOf(EmulatedAmxDecodeValues, of, false);
      EXPECT_EQ(o, expected) << bad << " " << key;
    }
  }
}

TEST(AmxDecodeTest, InstructionsRoundAsTheirEmulation) {
  if (!AmxBf16Available()) GTEST_SKIP() << "this machine has no AMX";
  for (const Shape& shape : Shapes()) {
    const Operands of(shape);
    EmulatedAmxTiles::Configure();
    const std::vector<float> s = ScoresOf(EmulatedAmxDecodeScores, of);
    const std::vector<float> o = ValuesOf(EmulatedAmxDecodeValues, of);
    EmulatedAmxTiles::Release();
    AmxTiles::Configure();
    EXPECT_EQ(ScoresOf(AmxDecodeScores, of), s) << shape.dims;
    EXPECT_EQ(ValuesOf(AmxDecodeValues, of), o) << shape.dims;
    AmxTiles::Release();
  }
}

}  // namespace
}  // namespace attendant::kernels::cpu
