// Which backend the integration tests serve on: the CPU, unless
// ATTENDANT_TEST_BACKEND says cuda (then without fp32, which no GPU kernel
// computes in).
#pragma once

#include <cstdlib>
#include <string>

namespace attendant::testing {

inline bool TestsOnCuda() {
  const char* set = std::getenv("ATTENDANT_TEST_BACKEND");
  return set != nullptr && std::string(set) == "cuda";
}

}  // namespace attendant::testing
