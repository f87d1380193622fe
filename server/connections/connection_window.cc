#include "server/connections/connection_window.h"

#include <atomic>

// As gRPC's flow_control.h declares them, which is not installed.
namespace grpc_core::chttp2 {

class TestOnlyTransportTargetWindowEstimatesMocker {
 public:
  virtual ~TestOnlyTransportTargetWindowEstimatesMocker() = default;
  virtual double ComputeNextTargetInitialWindowSizeFromPeriodicUpdate(
      double current_target) = 0;
};

// Weak: its address is null where the library has none.
extern TestOnlyTransportTargetWindowEstimatesMocker*
    g_test_only_transport_target_window_estimates_mocker __attribute__((weak));

}  // namespace grpc_core::chttp2

namespace attendant::server {
namespace {

using grpc_core::chttp2::g_test_only_transport_target_window_estimates_mocker;

class FixedWindow final
    : public grpc_core::chttp2::TestOnlyTransportTargetWindowEstimatesMocker {
 public:
  explicit FixedWindow(int64_t bytes) : bytes_(bytes) {}

  double ComputeNextTargetInitialWindowSizeFromPeriodicUpdate(
      double /*current_target*/) override {
    return static_cast<double>(bytes_.load(std::memory_order_relaxed));
  }
  void set(int64_t bytes) { bytes_.store(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> bytes_;
};

}  // namespace

bool FixConnectionWindow(int64_t bytes) {
  if (&g_test_only_transport_target_window_estimates_mocker == nullptr) {
    return false;
  }
  // Never destroyed: gRPC's threads outlive main().
  static FixedWindow* const window = [bytes] {
    auto* const made = new FixedWindow(bytes);
    g_test_only_transport_target_window_estimates_mocker = made;
    return made;
  }();
  window->set(bytes);
  return true;
}

}  // namespace attendant::server
