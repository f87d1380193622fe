// Answers against the oracle, by the tolerance of the contract:
//   max |O - O64| <= 2 max |O_plain - O64| + 1e-5 max |V|, per request;
//   |LSE - LSE64| <= 1e-3 (16-bit inputs) or 1e-5 max(1, |LSE|) (fp32).
// LSE may be off by its own rounding, too.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <vector>

#include "kernels/reference/oracle.h"
#include "tests/testing/host_problem.h"

namespace attendant::testing {

// What one problem's answer must be, and how far off it may be. Does not need
// the problem's outputs, so it may be made before or after a run.
struct Expectation {
  kernels::reference::OracleResult oracle;
  double out_tolerance = 0;

  explicit Expectation(const HostProblem& problem)
      : Expectation(problem.problem()) {}
  // Host pointers.
  explicit Expectation(const kernels::AttentionProblem& problem);
};

// Of all problems, computed on all cores.
std::vector<Expectation> ExpectationsOf(std::span<HostProblem* const> problems);

// Places of NaN and infinity first, then O, then LSE, then damage around them.
::testing::AssertionResult Matches(const HostProblem& problem,
                                   const Expectation& expectation);
::testing::AssertionResult MatchesOracle(const HostProblem& problem);

// For answers too large for the oracle: eight rows at the start, at the end and
// somewhere between, of `samples` random (sequence, KV head) pairs; and damage
// everywhere. Packed problems must have no mask.
::testing::AssertionResult MatchesOracleInSamples(const HostProblem& problem,
                                                  int64_t samples);

// O and LSE equal bit for bit.
::testing::AssertionResult SameAnswer(const HostProblem& a,
                                      const HostProblem& b);
::testing::AssertionResult SameAnswer(const HostProblem& a,
                                      const std::vector<uint8_t>& bytes);

// One line: dtype, layout, sizes and options.
std::string Describe(const HostProblem& problem);

}  // namespace attendant::testing
