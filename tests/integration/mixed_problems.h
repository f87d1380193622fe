// Small problems of every layout, dtype and option that a request can carry.
// On CUDA (test_backend.h) bf16 stands in for fp32.
#pragma once

#include <vector>

#include "tests/testing/host_problem.h"

namespace attendant::testing {

std::vector<ProblemOptions> MixedProblems();

}  // namespace attendant::testing
