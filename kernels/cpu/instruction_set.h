// Which instruction sets this machine has kernels for, and which one is used.
#pragma once

#include <string_view>
#include <vector>

#include "kernels/cpu/simd_kernels.h"

namespace attendant::kernels::cpu {

// What Highway compiled and this machine can run, best first.
std::vector<SimdKernels> HighwayKernels();

// Every set of kernels that this machine can run, best first; never empty.
const std::vector<SimdKernels>& AllSimdKernels();

// The set in use: the best, or the one that the environment variable
// ATTENDANT_CPU_TARGET names (read once, at the first call). A name that is
// not available here ends the process with the list of those that are.
const SimdKernels& ActiveSimdKernels();

// Makes the set of that name the one in use. False if there is none. For tests
// and benchmarks; not while a launch runs.
bool SetActiveSimdKernels(std::string_view name);

}  // namespace attendant::kernels::cpu
