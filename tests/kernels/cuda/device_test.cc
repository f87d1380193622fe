#include "kernels/cuda/device.h"

#include <gtest/gtest.h>

#include "kernels/cuda/buffer.h"
#include "kernels/cuda/event.h"
#include "kernels/cuda/fill.h"
#include "kernels/cuda/stream.h"

namespace attendant::kernels::cuda {
namespace {

TEST(CountDevicesTest, SaysWhyThereIsNone) {
  std::string why_none;
  if (CountDevices(&why_none) == 0) {
    EXPECT_FALSE(why_none.empty());
  } else {
    EXPECT_TRUE(why_none.empty());
  }
}

TEST(DescribeDeviceTest, AnUnknownIndexIsAnErrorNotACrash) {
  EXPECT_FALSE(DescribeDevice(1000).ok());
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why_none;
    if (CountDevices(&why_none) == 0) GTEST_SKIP() << "no GPU: " << why_none;
  }
};

TEST_F(CudaDeviceTest, DescribesTheFirstDevice) {
  const absl::StatusOr<DeviceInfo> info = DescribeDevice(0);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->uuid.size(), 40u) << info->uuid;
  EXPECT_GT(info->memory_bytes, 0);
  EXPECT_GE(info->properties.compute_capability, 50);
  EXPECT_GT(info->properties.num_sms, 0);
  EXPECT_GE(info->properties.shared_memory_per_block_optin, 48 << 10);
}

TEST_F(CudaDeviceTest, FillsAndTimesOnAStream) {
  constexpr int64_t kCount = 1000003;
  const auto stream = Stream::Create();
  const auto start = Event::Create();
  const auto end = Event::Create();
  const auto device = DeviceBuffer::Create(kCount * 4);
  const auto host = PinnedBuffer::Create(kCount * 4);
  ASSERT_TRUE(stream.ok() && start.ok() && end.ok() && device.ok() &&
              host.ok());
  float* values = reinterpret_cast<float*>(device->data());
  ASSERT_TRUE(start->Record(stream->get()).ok());
  ASSERT_EQ(FillFloat(values, kCount, -1.5f, stream->get()), absl::OkStatus());
  ASSERT_TRUE(FillZero(values, 4, stream->get()).ok());
  ASSERT_TRUE(end->Record(stream->get()).ok());
  ASSERT_EQ(cudaMemcpyAsync(host->data(), values, kCount * 4,
                            cudaMemcpyDeviceToHost, stream->get()),
            cudaSuccess);
  ASSERT_TRUE(stream->Synchronize().ok());
  const float* seen = reinterpret_cast<const float*>(host->data());
  EXPECT_EQ(seen[0], 0.0f);
  for (int64_t i = 1; i < kCount; ++i) ASSERT_EQ(seen[i], -1.5f) << i;
  const auto elapsed = ElapsedNanoseconds(*start, *end);
  ASSERT_TRUE(elapsed.ok());
  EXPECT_GT(*elapsed, 0);
}

TEST_F(CudaDeviceTest, TooLargeABufferIsExhaustedAndTheNextCallIsFine) {
  const auto huge = DeviceBuffer::Create(int64_t{1} << 50);
  EXPECT_EQ(huge.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(DeviceBuffer::Create(256).ok());
}

TEST_F(CudaDeviceTest, ARefusedCallIsNotReportedByTheNextLaunch) {
  const auto stream = Stream::Create();
  const auto device = DeviceBuffer::Create(4);
  ASSERT_TRUE(stream.ok() && device.ok());
  EXPECT_EQ(DescribeDevice(4096).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(FillFloat(reinterpret_cast<float*>(device->data()), 1, 1.0f,
                      stream->get()),
            absl::OkStatus());
  EXPECT_TRUE(stream->Synchronize().ok());
}

}  // namespace
}  // namespace attendant::kernels::cuda
