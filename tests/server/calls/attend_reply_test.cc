#include "server/calls/attend_reply.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "server/calls/tensor_copy.h"
#include "server/log/log.h"

namespace attendant::server {
namespace {

using std::chrono::nanoseconds;

TEST(AttendReply, ExposedStagesAddUpToTheTotal) {
  JobResult result;
  result.exposed_ns[static_cast<int>(Stage::kQueue)] = 20;
  result.exposed_ns[static_cast<int>(Stage::kKernel)] = 300;
  result.busy_ns[static_cast<int>(Stage::kKernel)] = 450;
  const Clock::time_point begin{};
  const AttendOutcome outcome = OutcomeOfAnswer(
      result, begin, begin + nanoseconds(1'000), begin + nanoseconds(1'400));
  EXPECT_EQ(outcome.total_ns, 1'400);
  EXPECT_EQ(outcome.exposed_ns[static_cast<int>(Stage::kReceive)], 1'000);
  EXPECT_EQ(outcome.exposed_ns[static_cast<int>(Stage::kSend)], 80);
  EXPECT_EQ(outcome.busy_ns[static_cast<int>(Stage::kKernel)], 450);
  EXPECT_EQ(std::accumulate(outcome.exposed_ns.begin(),
                            outcome.exposed_ns.end(), int64_t{0}),
            outcome.total_ns);
}

TEST(AttendReply, LseIsDescribedOnlyWhenAskedFor) {
  ValidatedRequest request;
  EXPECT_FALSE(DescribeAnswer(request, {}, {}, {}).has_lse());
  request.lse_spec.set_dtype(v1::DATA_TYPE_FP32);
  EXPECT_TRUE(DescribeAnswer(request, {}, {}, {}).has_lse());
}

TEST(AttendReply, OnlyAnswersThatTookLongHaveALineByDefault) {
  std::vector<std::string> lines;
  SetLogSink([&](const std::string& line) { lines.push_back(line); });
  AttendOutcome outcome;
  outcome.method = Method::kAttendStream;
  outcome.identity = "search";
  outcome.total_ns = 2'000'000;
  outcome.exposed_ns[static_cast<int>(Stage::kQueue)] = 1'500'000;
  v1::AttendResponse reply;
  reply.set_request_id("job-7");
  LogAnswer(reply, outcome, "", 2'000'001);
  LogAnswer(reply, outcome, "", 0);
  EXPECT_TRUE(lines.empty());
  LogAnswer(reply, outcome, "", 2'000'000);
  SetLogSink(nullptr);
  ASSERT_EQ(lines.size(), 1u);
  const auto line = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(line["level"], "warning");
  EXPECT_EQ(line["message"], "slow request");
  EXPECT_EQ(line["request_id"], "job-7");
  EXPECT_EQ(line["identity"], "search");
  EXPECT_EQ(line["method"], "AttendStream");
  EXPECT_EQ(line["total_ms"], 2);
  EXPECT_EQ(line["queue_ms"], 1.5);
}

TEST(TensorCopy, PiecesCoverEveryImageInOrder) {
  ValidatedRequest request;
  request.images = {{.field = TensorField::kQ,
                     .from = kernels::DataType::kFloat32,
                     .to = kernels::DataType::kBFloat16,
                     .wire_bytes = 1000,
                     .block_offset = 256},
                    {.field = TensorField::kK, .wire_bytes = 0}};
  ParsedRequest parsed;
  parsed.tensors[static_cast<int>(TensorField::kQ)] = {17, 1000};
  const std::vector<CopyPiece> pieces = CutIntoPieces(parsed, request, 384);
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[1].message_offset, 17 + 384);
  EXPECT_EQ(pieces[1].bytes, 384);
  EXPECT_EQ(pieces[1].block_offset, 256 + 384 / 2);  // 4 bytes become 2
  EXPECT_EQ(pieces[2].bytes, 1000 - 2 * 384);
}

}  // namespace
}  // namespace attendant::server
