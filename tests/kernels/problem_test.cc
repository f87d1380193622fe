#include "kernels/problem.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attendant::kernels {
namespace {

AttentionProblem OneSequence(int64_t len_q, int64_t len_kv) {
  AttentionProblem problem;
  problem.batch = 1;
  problem.num_q_heads = problem.whole_num_q_heads = 2;
  problem.num_kv_heads = problem.whole_num_kv_heads = 1;
  problem.head_dim = 3;
  problem.head_dim_v = 5;
  problem.rows_q = len_q;
  problem.sequences = {
      {.len_q = len_q, .len_kv = len_kv, .whole_len_q = len_q}};
  return problem;
}

int64_t CountPairs(const AttentionProblem& problem) {
  int64_t pairs = 0;
  const SequenceBounds& sequence = problem.sequences[0];
  for (int64_t i = 0; i < sequence.len_q; ++i) {
    const KeyRange keys = VisibleKeys(problem, sequence, i);
    pairs += std::max<int64_t>(0, keys.end - keys.begin);
  }
  return pairs;
}

TEST(VisibleKeysTest, BottomRightCausalSeesTheLastKeysOfALongerSequence) {
  AttentionProblem problem = OneSequence(2, 5);
  problem.causal = true;
  problem.sequences[0].diagonal_shift = 3;
  EXPECT_EQ(VisibleKeys(problem, problem.sequences[0], 0).end, 4);
  EXPECT_EQ(VisibleKeys(problem, problem.sequences[0], 1).end, 5);
}

TEST(ForwardFlopsTest, AgreesWithCountingForEveryMask) {
  for (int64_t len_q : {0, 1, 4, 9}) {
    for (int64_t len_kv : {0, 1, 5, 9}) {
      for (bool causal : {false, true}) {
        for (int64_t left : {-1, 0, 2, 20}) {
          for (int64_t right : {-1, 0, 3, 20}) {
            for (int64_t shift : {int64_t{0}, len_kv - len_q, int64_t{-7}}) {
              AttentionProblem problem = OneSequence(len_q, len_kv);
              problem.causal = causal;
              problem.window_left = left;
              problem.window_right = right;
              problem.sequences[0].diagonal_shift = shift;
              EXPECT_EQ(ForwardFlops(problem),
                        2.0 * 8 * 2 * CountPairs(problem))
                  << len_q << " " << len_kv << " " << causal << " " << left
                  << " " << right << " " << shift;
            }
          }
        }
      }
    }
  }
}

TEST(DataTypeTest, EveryFloat16RoundTripsThroughFloat) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = Float16ToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(FloatToFloat16(value), bits);
  }
}

TEST(DataTypeTest, RoundsTiesToEvenAndSaturatesToInf) {
  EXPECT_EQ(FloatToFloat16(2049.0f), FloatToFloat16(2048.0f));
  EXPECT_EQ(FloatToFloat16(2051.0f), FloatToFloat16(2052.0f));
  EXPECT_EQ(FloatToFloat16(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToFloat16(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToFloat16(0x1p-25f), 0);
  EXPECT_EQ(FloatToFloat16(0x1.8p-25f), 1);
  EXPECT_EQ(FloatToBFloat16(257.0f), FloatToBFloat16(256.0f));
  EXPECT_TRUE(std::isnan(BFloat16ToFloat(FloatToBFloat16(NAN))));
}

}  // namespace
}  // namespace attendant::kernels
