// Runs the tests of this executable, or skips aloud (exit code 77) where
// ATTENDANT_TEST_BACKEND asks for a GPU and there is none to be used.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/integration/real_server.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!attendant::testing::BackendIsThere()) {
    std::puts("skipped: there is no usable GPU");
    return 77;  // ctest's SKIP_RETURN_CODE
  }
  return RUN_ALL_TESTS();
}
