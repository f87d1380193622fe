// Runs host problems as one grouped plan on a named kernel: "cpu", "sm80",
// "sm90", or "plain" (the reference's plain implementation, to prove a test).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/attention.h"
#include "tests/testing/host_problem.h"

namespace attendant::testing {

inline constexpr std::string_view kPlainKernel = "plain";

struct RunOptions {
  // Cut every problem into parts of so many batch entries and KV heads (see
  // CutProblem); 0 = leave whole.
  int64_t cut_batch = 0;
  int64_t cut_kv_heads = 0;
  // And of so many query rows (see CutRows); a multiple of kRowCutStep.
  int64_t cut_rows = 0;
  // CPU: worker threads.
  int num_threads = 2;
  // CUDA, problems of batch 1 without gaps, uncut: elements between rows (BSHD)
  // or heads (BHSD) of q, k, v and O on the device, so that offsets there pass
  // what 32 bits hold. 0 = as on the host.
  int64_t spread = 0;
  // CUDA: plan for a device whose blocks may opt into so many bytes of shared
  // memory, at most this device's; 0 = this device's.
  int64_t shared_memory = 0;
};

// Problems on the device, planned. Runs as often as asked.
class AttentionRunner {
 public:
  // `problems` must outlive the runner; inputs are copied to the device here.
  // Errors: UNIMPLEMENTED if the kernel does not serve one of them; UNAVAILABLE
  // without the device.
  static absl::StatusOr<std::unique_ptr<AttentionRunner>> Create(
      std::string_view kernel, std::span<HostProblem* const> problems,
      const RunOptions& options = {});
  virtual ~AttentionRunner() = default;

  // Poisons O and LSE, fills uncovered rows, launches, repairs if told to,
  // copies O and LSE back, guards and all.
  virtual absl::Status Run() = 0;
  // Run while `count` of the GPU's multiprocessors are held by a kernel that
  // waits for the end of this one. Run must have gone before (loading code may
  // wait for an idle GPU). DEADLINE_EXCEEDED: not done after 20 s, because the
  // launch needs more multiprocessors than it found.
  virtual absl::Status RunBesideHeldMultiprocessors(int count) {
    return absl::UnimplementedError("only a GPU has them: " +
                                    std::to_string(count));
  }
  // True if the last run was repaired.
  virtual bool repaired() const { return false; }
  virtual int64_t workspace_bytes() const { return 0; }
};

// Create and Run.
absl::Status RunGrouped(std::string_view kernel,
                        std::span<HostProblem* const> problems,
                        const RunOptions& options = {});
absl::Status RunAlone(std::string_view kernel, HostProblem& problem,
                      const RunOptions& options = {});

// Empty if this machine can run `kernel`, else why not.
std::string WhyCannotRun(std::string_view kernel);

// Of the device that `kernel` runs on here.
kernels::DeviceProperties PropertiesFor(std::string_view kernel,
                                        const RunOptions& options = {});

// True if the kernel's own rules let it serve `problem` on this machine.
bool Serves(std::string_view kernel, const HostProblem& problem);

// The parts that `options` cuts `problem` into, over the same host memory.
std::vector<kernels::AttentionProblem> PartsOf(const HostProblem& problem,
                                               const RunOptions& options);

#ifdef ATTENDANT_WITH_CUDA
absl::StatusOr<std::unique_ptr<AttentionRunner>> CreateCudaRunner(
    std::string_view kernel, std::span<HostProblem* const> problems,
    const RunOptions& options);
#endif

}  // namespace attendant::testing
