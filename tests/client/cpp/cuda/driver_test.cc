#include "client/cpp/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/client/cpp/cuda/fake_cuda.h"
#if __has_include(<cuda.h>)
#include <cuda.h>
#define HAS_CUDA_H
#endif

namespace attendant::client::cuda {
namespace {

using ::testing::HasSubstr;

TEST(CudaDriver, AnOldDriverIsToldByTheFunctionThatItLacks) {
  Driver driver;
  int function = 0;
  const absl::Status status = FillDriver(
      [&](const std::string& name) -> void* {
        return name == "cuMemExportToShareableHandle" ? nullptr : &function;
      },
      &driver);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cuMemExportToShareableHandle"));
}

TEST(CudaDriver, UuidsReadAsNvidiaSmiWritesThem) {
  const FakeCuda gpu;
  EXPECT_EQ(UuidOf(gpu.driver(), 0), FakeCuda::kUuid);
}

TEST(CudaDriver, LoadSaysWhatIsMissing) {
  const auto driver = Driver::Load();
  if (driver.ok()) GTEST_SKIP() << "there is a GPU";
  EXPECT_EQ(driver.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(driver.status().message()),
              HasSubstr("on this machine"));
}

#ifdef HAS_CUDA_H
// The client is built without CUDA's headers: its own words for them agree.
constexpr bool Same(int ours, int theirs) { return ours == theirs; }
static_assert(Same(kMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(Same(kBufferId, CU_POINTER_ATTRIBUTE_BUFFER_ID));
static_assert(Same(kIsManaged, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(Same(kDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
static_assert(Same(kIsIpcCapable,
                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE));
static_assert(Same(kRangeStart, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
static_assert(Same(kRangeSize, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
static_assert(Same(kAllowedHandleTypes,
                   CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES));
static_assert(Same(kMempoolHandle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
static_assert(Same(kMappingSize, CU_POINTER_ATTRIBUTE_MAPPING_SIZE));
static_assert(Same(kMappingBase, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR));
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));
static_assert(sizeof(IpcHandle) == sizeof(CUipcEventHandle));
static_assert(sizeof(Uuid) == sizeof(CUuuid));
static_assert(sizeof(AllocationProperties) == sizeof(CUmemAllocationProp));
static_assert(offsetof(AllocationProperties, location) ==
              offsetof(CUmemAllocationProp, location));
static_assert(sizeof(AccessDescription) == sizeof(CUmemAccessDesc));
static_assert(AllocationProperties{}.type == CU_MEM_ALLOCATION_TYPE_PINNED);
static_assert(AllocationProperties{}.handle_types ==
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
static_assert(Location{}.type == CU_MEM_LOCATION_TYPE_DEVICE);
static_assert(AccessDescription{}.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
#endif

}  // namespace
}  // namespace attendant::client::cuda
