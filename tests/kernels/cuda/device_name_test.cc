// What of device.h needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/device.h"

namespace attendant::testing {
namespace {

using kernels::cuda::DeviceInfo;
using kernels::cuda::IsNamed;
using ::testing::HasSubstr;

DeviceInfo Device(int index, const std::string& uuid) {
  DeviceInfo info;
  info.index = index;
  info.uuid = uuid;
  return info;
}

TEST(DeviceName, AnIndexIsAnIndex) {
  EXPECT_TRUE(IsNamed(Device(1, "GPU-0a"), "1"));
  EXPECT_FALSE(IsNamed(Device(1, "GPU-0a"), "0"));
  EXPECT_FALSE(IsNamed(Device(1, "GPU-0a"), "11"));
}

TEST(DeviceName, AUuidNamesAGpuOrAPartOfOne) {
  EXPECT_TRUE(IsNamed(Device(0, "GPU-0a1b"), "GPU-0a1b"));
  EXPECT_TRUE(IsNamed(Device(0, "MIG-0a1b"), "MIG-0a1b"));
  EXPECT_TRUE(IsNamed(Device(0, "GPU-0a1b"), "MIG-0a1b"));
  EXPECT_TRUE(IsNamed(Device(0, "MIG-0a1b"), "0a1b"));
  EXPECT_FALSE(IsNamed(Device(0, "GPU-0a1b"), "GPU-0a1c"));
  EXPECT_FALSE(IsNamed(Device(0, "GPU-0a1b"), ""));
}

TEST(DeviceName, AnOldDriverIsSaidInPlainWords) {
  EXPECT_EQ(kernels::cuda::DriverTooOld(12040, 13000),
            "the NVIDIA driver is too old: it serves CUDA 12.4, this build "
            "needs 13.0 (driver 580 or newer)");
  EXPECT_THAT(kernels::cuda::DriverTooOld(11040, 12060),
              HasSubstr("needs 12.6 (driver 525"));
}

}  // namespace
}  // namespace attendant::testing
