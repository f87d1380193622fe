// What every kernel has to get right, whatever it is made of. Each suite is
// parameterised by the kernel's name in the capability table.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/attention.h"
#include "tests/testing/attention_runner.h"
#include "tests/testing/host_problem.h"
#include "tests/testing/random.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {

// Names in the capability table of this build; ATTENDANT_TEST_KERNELS, a list
// with commas, restricts them (and may name "plain").
std::vector<std::string> KernelsUnderTest();
std::string KernelTestName(const ::testing::TestParamInfo<std::string>& info);

// Skips, aloud, where the kernel's device is missing.
class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override;
  void TearDown() override;

  const std::string& kernel() const { return GetParam(); }
  bool is_gpu() const { return kernel() != "cpu" && kernel() != kPlainKernel; }
  // The long tier: on a GPU, or when ATTENDANT_TEST_LONG is set; not under a
  // sanitizer.
  bool is_long() const;
  // How often to repeat what should come out the same each time. A sanitizer
  // makes a launch a hundred times slower, and sees in the first what there is.
  int64_t rounds(int64_t on_gpu, int64_t elsewhere) const;
  // Types the kernel computes in.
  std::vector<kernels::DataType> dtypes() const;
  // One of them, by turns.
  kernels::DataType dtype(int64_t turn) const;

  // Drops the problems that the kernel's own rules do not serve; their number
  // is printed. Returns what is left, as the runner wants it.
  std::vector<HostProblem*> Served(std::vector<HostProblem>& problems);
  // Runs all that are served as one grouped plan and compares with the oracle.
  void CheckGrouped(std::vector<HostProblem>& problems,
                    const RunOptions& options = {});
  // Runs it alone; false (and counted) if it is not served.
  bool Run(HostProblem& problem, const RunOptions& options = {});
  // Run, then compare with the oracle.
  void Check(HostProblem& problem, const RunOptions& options = {});

 private:
  // ATTENDANT_TEST_EXACT is set: the case runs under compute-sanitizer.
  static bool is_sanitized();

  int64_t checked_ = 0;
  int64_t unserved_ = 0;
};

}  // namespace attendant::testing

// Registers `suite` (a class derived from ConformanceTest) for every kernel.
#define ATTENDANT_CONFORMANCE_SUITE(suite)                          \
  INSTANTIATE_TEST_SUITE_P(Kernels, suite,                          \
                           ::testing::ValuesIn(KernelsUnderTest()), \
                           KernelTestName);                         \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(suite)
