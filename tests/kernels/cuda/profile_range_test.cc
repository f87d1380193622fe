#include "kernels/cuda/profile_range.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace attendant::testing {
namespace {

TEST(ProfileRange, AProfilerSeesNestedRangesByName) {
  // NVTX looks for a profiler at its first call, which is below.
  setenv("NVTX_INJECTION64_PATH", ATTENDANT_FAKE_PROFILER, 1);
  {
    const kernels::cuda::ProfileRange upload("upload");
    const kernels::cuda::ProfileRange copy("copy");
  }
  void* profiler = dlopen(ATTENDANT_FAKE_PROFILER, RTLD_NOW);
  ASSERT_NE(profiler, nullptr);
  const auto seen =
      reinterpret_cast<const char* (*)()>(dlsym(profiler, "SeenRanges"));
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(std::string(seen()),
            "domain attendant;push upload;push copy;pop;pop;");
  dlclose(profiler);
}

}  // namespace
}  // namespace attendant::testing
