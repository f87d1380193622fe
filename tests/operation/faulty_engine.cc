#include "tests/operation/faulty_engine.h"

#include <atomic>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "server/engine/cuda_executor.h"
#include "server/engine/device_engine.h"
#include "server/engine/host_memory_pool.h"
#include "tests/server/fake_device_port.h"

namespace attendant::testing {
namespace {

constexpr int64_t kDeviceBytes = int64_t{64} << 20;
constexpr int64_t kScratchBytes = int64_t{16} << 20;
constexpr int64_t kHostScratchBytes = int64_t{4} << 20;
constexpr double kItemFlops = 1e9;

std::atomic<bool> g_fail_launch{false};
std::atomic<bool> g_broken{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// Done as soon as it is marked; fails as asked.
class FaultyPort final : public server::DevicePort {
 public:
  explicit FaultyPort(kernels::cpu::ThreadPool* pool) : device_(pool) {
    device_.automatic = true;
  }

  absl::Status Upload(Queue queue, void* device, const void* host,
                      int64_t pitch, int64_t width, int64_t height) override {
    return device_.Upload(queue, device, host, pitch, width, height);
  }
  absl::Status Download(Queue queue, void* host, const void* device,
                        int64_t pitch, int64_t width, int64_t height) override {
    return device_.Download(queue, host, device, pitch, width, height);
  }
  absl::Status FillZero(Queue queue, void* device, int64_t bytes) override {
    return device_.FillZero(queue, device, bytes);
  }
  absl::Status FillFloat(Queue queue, float* device, int64_t count,
                         float value) override {
    return device_.FillFloat(queue, device, count, value);
  }
  absl::Status Launch(const kernels::AttentionPlan& plan,
                      kernels::LaunchContext context) override {
    if (g_broken) return FakeDevicePort::StickyError();
    if (g_fail_launch.exchange(false)) {
      return absl::InternalError("injected: the launch was refused");
    }
    return device_.Launch(plan, context);
  }
  absl::Status Repair(const kernels::AttentionPlan& plan,
                      kernels::LaunchContext context) override {
    return device_.Repair(plan, context);
  }
  absl::Status ReadFlag(int32_t* host, const void* device) override {
    return device_.ReadFlag(host, device);
  }
  absl::Status Mark(Queue queue, Queue stage, int slot) override {
    return device_.Mark(queue, stage, slot);
  }
  absl::StatusOr<bool> IsReached(Queue stage, int slot) override {
    return device_.IsReached(stage, slot);
  }
  absl::Status Synchronize() override { return device_.Synchronize(); }
  bool IsSticky(const absl::Status& status) const override {
    return device_.IsSticky(status);
  }

 private:
  FakeDevicePort device_;
};

// What the executor uses; lives as long as the engine.
struct FaultyDevice {
  kernels::cpu::ThreadPool pool{1};
  std::vector<std::byte> device = std::vector<std::byte>(kDeviceBytes + 256);
  std::vector<std::byte> host = std::vector<std::byte>(kHostScratchBytes);
  FaultyPort port{&pool};
};

}  // namespace

void FailNextLaunch() { g_fail_launch = true; }
void BreakDevice() { g_broken = true; }

absl::StatusOr<std::unique_ptr<server::AttentionEngine>> MakeFaultyEngine(
    const server::EngineOptions& options) {
  const auto device = std::make_shared<FaultyDevice>();
  server::EngineParts parts;
  parts.device.name = "a device that fails when told to";
  parts.device.properties.num_sms = 1;
  ASSIGN_OR_RETURN(parts.host_pool,
                   server::CreatePlainHostPool(options.host_pool_bytes));
  parts.device_pool =
      std::make_unique<server::RangePool>(kDeviceBytes - kScratchBytes);
  parts.device_memory = device->device.data();
  parts.executor_bytes = kScratchBytes;
  parts.default_item_flops = kItemFlops;
  parts.start_executor =
      [device, properties = parts.device.properties](server::WorkSource* source)
      -> absl::StatusOr<std::unique_ptr<server::AttentionExecutor>> {
    server::CudaExecutor::Options executor;
    executor.device = properties;
    executor.device_memory = device->device.data();
    executor.device_scratch =
        device->device.data() + kDeviceBytes - kScratchBytes;
    executor.device_scratch_bytes = kScratchBytes;
    executor.host_scratch = device->host.data();
    executor.host_scratch_bytes = kHostScratchBytes;
    auto made =
        std::make_unique<server::CudaExecutor>(executor, source, &device->port);
    RETURN_IF_ERROR(made->Prepare());
    made->Start();
    return made;
  };
  return server::MakeDeviceEngine(options, std::move(parts));
}

}  // namespace attendant::testing
