#include "tests/kernels/conformance/conformance.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

namespace attendant::testing {
namespace {

using kernels::DataType;

const std::string& WhyCannotRunCached(const std::string& kernel) {
  static auto& reasons = *new std::map<std::string, std::string>();
  const auto found = reasons.find(kernel);
  if (found != reasons.end()) return found->second;
  return reasons[kernel] = WhyCannotRun(kernel);
}

}  // namespace

std::vector<std::string> KernelsUnderTest() {
  std::vector<std::string> names;
  const char* chosen = std::getenv("ATTENDANT_TEST_KERNELS");
  if (chosen == nullptr || *chosen == '\0') {
    for (const kernels::KernelEntry& entry : kernels::Kernels()) {
      names.emplace_back(entry.capability.kernel);
    }
    return names;
  }
  std::string list = chosen;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) names.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

std::string KernelTestName(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

void ConformanceTest::SetUp() {
  const std::string& why_not = WhyCannotRunCached(kernel());
  if (!why_not.empty()) GTEST_SKIP() << kernel() << ": " << why_not;
}

void ConformanceTest::TearDown() {
  if (unserved_ == 0) return;
  // Only the Hopper kernel leaves problems to another one.
  EXPECT_EQ(kernel(), "sm90") << kernel() << " serves everything, but refused "
                              << unserved_ << " problems";
  std::printf("[  NOTE    ] %s does not serve %lld of %lld problems\n",
              kernel().c_str(), static_cast<long long>(unserved_),
              static_cast<long long>(unserved_ + checked_));
}

bool ConformanceTest::is_long() const {
  const char* set = std::getenv("ATTENDANT_TEST_LONG");
  return (is_gpu() && !is_sanitized()) || (set != nullptr && *set == '1');
}

bool ConformanceTest::is_sanitized() {
  return std::getenv("ATTENDANT_TEST_EXACT") != nullptr;
}

int64_t ConformanceTest::rounds(int64_t on_gpu, int64_t elsewhere) const {
  return is_gpu() && !is_sanitized() ? on_gpu : elsewhere;
}

std::vector<DataType> ConformanceTest::dtypes() const {
  bool fp32 = true, fp16 = true, bf16 = true;
  for (const kernels::KernelEntry& entry : kernels::Kernels()) {
    if (entry.capability.kernel != kernel()) continue;
    fp32 = entry.capability.fp32;
    fp16 = entry.capability.fp16;
    bf16 = entry.capability.bf16;
  }
  std::vector<DataType> types;
  if (bf16) types.push_back(DataType::kBFloat16);
  if (fp16) types.push_back(DataType::kFloat16);
  if (fp32) types.push_back(DataType::kFloat32);
  return types;
}

DataType ConformanceTest::dtype(int64_t turn) const {
  const std::vector<DataType> types = dtypes();
  return types[turn % types.size()];
}

std::vector<HostProblem*> ConformanceTest::Served(
    std::vector<HostProblem>& problems) {
  std::vector<HostProblem*> served;
  for (HostProblem& problem : problems) {
    if (Serves(kernel(), problem)) {
      served.push_back(&problem);
      ++checked_;
    } else {
      ++unserved_;
    }
  }
  return served;
}

void ConformanceTest::CheckGrouped(std::vector<HostProblem>& problems,
                                   const RunOptions& options) {
  const std::vector<HostProblem*> served = Served(problems);
  if (served.empty()) return;
  const absl::Status status = RunGrouped(kernel(), served, options);
  ASSERT_TRUE(status.ok()) << status;
  const std::vector<Expectation> expectations = ExpectationsOf(served);
  int failures = 0;
  for (size_t n = 0; n < served.size() && failures < 5; ++n) {
    const ::testing::AssertionResult result =
        Matches(*served[n], expectations[n]);
    EXPECT_TRUE(result) << "problem " << n << " of " << served.size();
    failures += !result;
  }
}

bool ConformanceTest::Run(HostProblem& problem, const RunOptions& options) {
  if (!Serves(kernel(), problem)) {
    ++unserved_;
    return false;
  }
  ++checked_;
  const absl::Status status = RunAlone(kernel(), problem, options);
  EXPECT_TRUE(status.ok()) << status << "; of " << Describe(problem);
  return status.ok();
}

void ConformanceTest::Check(HostProblem& problem, const RunOptions& options) {
  if (!Run(problem, options)) return;
  EXPECT_TRUE(MatchesOracle(problem));
}

}  // namespace attendant::testing
