// The sm80 kernel laid out for GPUs with less shared memory: fewer rows of Q,
// shorter rings, warps without rows. Not a bit of an answer may change.
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/attention_runner.h"
#include "tests/testing/host_problem.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

constexpr int64_t kA100Bytes = 163 << 10;
constexpr int64_t kConsumerBytes = 99 << 10;

std::vector<ProblemOptions> Problems() {
  std::vector<ProblemOptions> problems;
  for (const int64_t head_dim : {64, 96, 128, 192, 200, 256}) {
    for (const bool general : {false, true}) {
      ProblemOptions options;
      options.dtype = general ? DataType::kFloat16 : DataType::kBFloat16;
      options.num_q_heads = 4;
      options.num_kv_heads = 2;
      options.head_dim = head_dim;
      options.seqlen_q = 200;
      options.seqlen_kv = 333;
      options.causal = options.bottom_right = true;
      if (general) options.mask = MaskKind::kBoolBits;
      options.seed = head_dim + general;
      problems.push_back(options);
      options.seqlen_q = 3;  // keys split, heads packed
      options.seqlen_kv = 2100;
      problems.push_back(options);
    }
  }
  return problems;
}

TEST(Sm80SharedMemoryTest, SmallerDevicesGiveTheSameBits) {
  const std::string why_not = WhyCannotRun("sm80");
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  for (const ProblemOptions& options : Problems()) {
    HostProblem problem(options);
    ASSERT_TRUE(RunAlone("sm80", problem).ok());
    EXPECT_TRUE(MatchesOracle(problem));
    const std::vector<uint8_t> answer = problem.AnswerBytes();
    for (const int64_t bytes : {kA100Bytes, kConsumerBytes}) {
      RunOptions smaller;
      smaller.shared_memory = bytes;
      const absl::Status status = RunAlone("sm80", problem, smaller);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameAnswer(problem, answer)) << bytes << " bytes";
    }
  }
}

}  // namespace
}  // namespace attendant::testing
