#include "tests/testing/attention_runner.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/reference/oracle.h"
#include "kernels/row_cut.h"
#ifdef ATTENDANT_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace attendant::testing {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionProblem;

// Runs in host memory: the CPU kernel, or the plain implementation.
class HostRunner : public AttentionRunner {
 public:
  HostRunner(std::span<HostProblem* const> owners, const RunOptions& options)
      : owners_(owners.begin(), owners.end()), pool_(options.num_threads) {
    for (HostProblem* owner : owners_) {
      for (AttentionProblem& part : PartsOf(*owner, options)) {
        parts_.push_back(std::move(part));
      }
    }
  }

  absl::Status Plan(const RunOptions& options) {
    ASSIGN_OR_RETURN(
        AttentionPlan plan,
        kernels::PlanAttention(PropertiesFor("cpu", options), parts_, "cpu"));
    plan_ = std::make_unique<AttentionPlan>(std::move(plan));
    workspace_ = GuardedBuffer(plan_->workspace_bytes());
    control_ = GuardedBuffer(plan_->control_bytes());
    descriptors_ = GuardedBuffer(plan_->descriptor_bytes());
    std::memset(control_.data(), 0, control_.size());
    return absl::OkStatus();
  }

  absl::Status Run() override {
    for (HostProblem* owner : owners_) {
      owner->PoisonOutputs();
      if (HasUncoveredRows(owner->problem())) {
        kernels::reference::FillEmptyRows(owner->problem());
      }
    }
    if (plan_ == nullptr) {
      for (const AttentionProblem& part : parts_) {
        kernels::reference::PlainSequences(part);
      }
      return absl::OkStatus();
    }
    workspace_.Poison();
    kernels::LaunchContext context;
    context.thread_pool = &pool_;
    context.workspace = workspace_.data();
    context.control = control_.data();
    context.host_descriptors = descriptors_.data();
    context.device_descriptors = descriptors_.data();
    RETURN_IF_ERROR(plan_->Launch(context));
    const std::span<const std::byte> whole = workspace_.whole();
    const auto is_poison = [](std::byte b) { return b == std::byte{0xff}; };
    if (!std::all_of(whole.begin(), whole.begin() + GuardedBuffer::kGuardBytes,
                     is_poison) ||
        !std::all_of(whole.end() - GuardedBuffer::kGuardBytes, whole.end(),
                     is_poison)) {
      return absl::InternalError("the kernel wrote outside of its workspace");
    }
    return absl::OkStatus();
  }

  int64_t workspace_bytes() const override {
    return plan_ == nullptr ? 0 : plan_->workspace_bytes();
  }

 private:
  std::vector<HostProblem*> owners_;
  std::vector<AttentionProblem> parts_;
  kernels::cpu::ThreadPool pool_;
  std::unique_ptr<AttentionPlan> plan_;
  GuardedBuffer workspace_, control_, descriptors_;
};

#ifdef ATTENDANT_WITH_CUDA
std::string CudaMissing(int min_capability, int max_capability) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    return absl::StrCat("no CUDA device: ", cudaGetErrorString(error));
  }
  const int capability = PropertiesFor("cuda").compute_capability;
  if (capability < min_capability || capability > max_capability) {
    return absl::StrCat("device has compute capability ", capability);
  }
  return {};
}
#endif

}  // namespace

std::vector<AttentionProblem> PartsOf(const HostProblem& owner,
                                      const RunOptions& options) {
  const AttentionProblem& whole = owner.problem();
  if (options.cut_batch + options.cut_kv_heads + options.cut_rows == 0) {
    return {whole};
  }
  const auto step = [](int64_t cut, int64_t all) {
    return std::max<int64_t>(1, cut == 0 ? all : cut);
  };
  const int64_t batch_step = step(options.cut_batch, whole.batch);
  const int64_t head_step = step(options.cut_kv_heads, whole.num_kv_heads);
  const int64_t row_step = step(options.cut_rows, whole.rows_q);
  std::vector<AttentionProblem> parts;
  for (int64_t b = 0; b < whole.batch; b += batch_step) {
    for (int64_t h = 0; h < whole.num_kv_heads; h += head_step) {
      AttentionProblem part =
          kernels::CutProblem(whole, b, std::min(b + batch_step, whole.batch),
                              h, std::min(h + head_step, whole.num_kv_heads));
      if (options.cut_rows == 0) {
        parts.push_back(std::move(part));
        continue;
      }
      for (int64_t r = 0; r < whole.rows_q; r += row_step) {
        parts.push_back(
            kernels::CutRows(part, r, std::min(r + row_step, whole.rows_q)));
      }
    }
  }
  return parts;
}

std::string WhyCannotRun(std::string_view kernel) {
  if (kernel == kPlainKernel) return {};
  for (const kernels::KernelEntry& entry : kernels::Kernels()) {
    if (entry.capability.kernel != kernel) continue;
    if (entry.capability.max_compute_capability == 0) return {};
#ifdef ATTENDANT_WITH_CUDA
    return CudaMissing(entry.capability.min_compute_capability,
                       entry.capability.max_compute_capability);
#endif
  }
  return "this build has no such kernel";
}

kernels::DeviceProperties PropertiesFor(std::string_view kernel,
                                        const RunOptions& options) {
  kernels::DeviceProperties properties;
  properties.num_sms = options.num_threads;
  if (kernel == "cpu" || kernel == kPlainKernel) return properties;
#ifdef ATTENDANT_WITH_CUDA
  const auto attribute = [](cudaDeviceAttr name) {
    int value = 0;
    cudaDeviceGetAttribute(&value, name, 0);
    return value;
  };
  properties.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor) +
      attribute(cudaDevAttrComputeCapabilityMinor);
  properties.num_sms = attribute(cudaDevAttrMultiProcessorCount);
  properties.shared_memory_per_block_optin =
      attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  if (options.shared_memory > 0) {
    properties.shared_memory_per_block_optin = std::min(
        properties.shared_memory_per_block_optin, options.shared_memory);
  }
#endif
  return properties;
}

bool Serves(std::string_view kernel, const HostProblem& problem) {
  if (kernel == kPlainKernel) return true;
  return kernels::PlanAttention(PropertiesFor(kernel), {&problem.problem(), 1},
                                kernel)
             .status()
             .code() != absl::StatusCode::kUnimplemented;
}

absl::StatusOr<std::unique_ptr<AttentionRunner>> AttentionRunner::Create(
    std::string_view kernel, std::span<HostProblem* const> problems,
    const RunOptions& options) {
  const std::string why_not = WhyCannotRun(kernel);
  if (!why_not.empty()) return absl::UnavailableError(why_not);
  if (kernel == kPlainKernel || kernel == "cpu") {
    auto runner = std::make_unique<HostRunner>(problems, options);
    if (kernel == "cpu") RETURN_IF_ERROR(runner->Plan(options));
    return runner;
  }
#ifdef ATTENDANT_WITH_CUDA
  return CreateCudaRunner(kernel, problems, options);
#else
  return absl::UnavailableError("built without CUDA");
#endif
}

absl::Status RunGrouped(std::string_view kernel,
                        std::span<HostProblem* const> problems,
                        const RunOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<AttentionRunner> runner,
                   AttentionRunner::Create(kernel, problems, options));
  return runner->Run();
}

absl::Status RunAlone(std::string_view kernel, HostProblem& problem,
                      const RunOptions& options) {
  HostProblem* const problems[] = {&problem};
  return RunGrouped(kernel, problems, options);
}

}  // namespace attendant::testing
