#include "server/request/sequence_layout.h"

#include <gtest/gtest.h>

#include "tests/server/validate.h"
#include "tests/testing/malformed_requests.h"

namespace attendant::server {
namespace {

using attendant::testing::GoodRequest;
using kernels::AttentionProblem;

TEST(SequenceLayoutTest, UnequalLengthsGiveEverySequenceItsOwnDiagonal) {
  v1::AttendRequest wire = GoodRequest();
  for (const int64_t length : {1, 3}) wire.add_seqlens_q(length);
  for (const int64_t start : {2, 0}) wire.add_starts_q(start);
  for (const int64_t length : {4, 2}) wire.add_seqlens_k(length);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  const AttentionProblem& p = (*request)->problem;
  ASSERT_EQ(p.sequences.size(), 2u);
  EXPECT_EQ(p.sequences[0].q_begin, 2);
  EXPECT_EQ(p.sequences[0].len_q, 1);
  EXPECT_EQ(p.sequences[0].whole_len_q, 1);
  EXPECT_EQ(p.sequences[0].diagonal_shift, 3);
  EXPECT_EQ(p.sequences[1].diagonal_shift, -1);
  EXPECT_TRUE(kernels::HasUncoveredRows(p));
}

TEST(SequenceLayoutTest, EqualLengthsNeedOneEntry) {
  v1::AttendRequest wire = GoodRequest();
  for (const int64_t length : {2, 2}) wire.add_seqlens_q(length);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ((*request)->problem.sequences.size(), 1u);
  EXPECT_EQ((*request)->problem.sequences[0].diagonal_shift, 2);
}

TEST(SequenceLayoutTest, AlignmentMattersOnlyWhenTheDiagonalDoes) {
  v1::AttendRequest wire = GoodRequest();
  wire.set_causal(false);
  wire.clear_alignment();
  EXPECT_TRUE(Validate(wire).ok());
  wire.set_causal(true);
  for (const int64_t length : {3, 3}) wire.add_seqlens_k(length);
  EXPECT_TRUE(Validate(wire).ok());  // lengths are equal
  wire.clear_seqlens_k();
  wire.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  const auto request = Validate(wire);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ((*request)->problem.sequences[0].diagonal_shift, 0);
}

}  // namespace
}  // namespace attendant::server
