// A HostProblem as an AttendRequest, and a reply's tensors back into it.
#pragma once

#include <gtest/gtest.h>

#include "attendant/v1/attention.pb.h"
#include "tests/testing/host_problem.h"

namespace attendant::testing {

// Inline tensors in the problem's layout; strides only where it has gaps, so
// that NaN between rows and in padding travels too. kThd: no skips.
v1::AttendRequest ToWire(const HostProblem& problem);

// Writes O and LSE of `reply` into `problem`, all stored rows. Fails if shape,
// dtype, layout or byte counts are not those that the contract says.
::testing::AssertionResult FromWire(const v1::AttendResponse& reply,
                                    HostProblem* problem);

}  // namespace attendant::testing
