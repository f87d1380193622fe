// AttentionRunner on the first CUDA device.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/reference/oracle.h"
#include "tests/testing/attention_runner.h"
#include "tests/testing/held_multiprocessors.h"

namespace attendant::testing {
namespace {

using kernels::AttentionPlan;
using kernels::AttentionProblem;
using kernels::DataType;

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat(what, ": ", cudaGetErrorString(error)));
}
#define RETURN_IF_CUDA_ERROR(call) RETURN_IF_ERROR(ToStatus(call, #call))

// True if tensors on the device shall be cudaMalloc'ed without guards, so that
// compute-sanitizer sees a step past their end. Slower; the guards, NaN, then
// cannot show what such a step read.
bool ExactAllocations() {
  static const bool exact = std::getenv("ATTENDANT_TEST_EXACT") != nullptr;
  return exact;
}

// The pool keeps what is freed: cudaMalloc would take most of the tests' time.
absl::Status KeepPoolMemory() {
  cudaMemPool_t pool = nullptr;
  RETURN_IF_ERROR(ToStatus(cudaDeviceGetDefaultMemPool(&pool, 0), "pool"));
  uint64_t threshold = uint64_t{1} << 32;
  return ToStatus(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold,
                                          &threshold),
                  "pool threshold");
}

// Device memory of the default stream's order, or pinned host memory.
class CudaMemory {
 public:
  CudaMemory() = default;
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() {
    if (data_ == nullptr) return;
    if (pinned_) {
      cudaFreeHost(data_);
    } else if (ExactAllocations()) {
      cudaFree(data_);
    } else {
      cudaFreeAsync(data_, nullptr);
    }
  }
  absl::Status Allocate(int64_t bytes, bool pinned) {
    pinned_ = pinned;
    const size_t size = bytes == 0 ? 16 : bytes;
    if (pinned) return ToStatus(cudaMallocHost(&data_, size), "cudaMallocHost");
    if (ExactAllocations()) {
      return ToStatus(cudaMalloc(&data_, size), "cudaMalloc");
    }
    return ToStatus(cudaMallocAsync(&data_, size, nullptr), "cudaMallocAsync");
  }
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  bool pinned_ = false;
};

// A host buffer and its copy on the device, guards and all unless exact.
struct Mirror {
  GuardedBuffer* host = nullptr;
  CudaMemory device;

  // The bytes of the host that the device has. Starts at a 256-byte border.
  std::span<std::byte> bytes() const {
    const std::span<std::byte> whole = host->whole();
    if (!ExactAllocations()) return whole;
    constexpr int64_t kGuard = GuardedBuffer::kGuardBytes;
    return whole.subspan(kGuard, whole.size() - 2 * kGuard);
  }

  absl::Status Upload() {
    return ToStatus(cudaMemcpy(device.data(), bytes().data(), bytes().size(),
                               cudaMemcpyHostToDevice),
                    "upload");
  }
  absl::Status Download() {
    return ToStatus(cudaMemcpy(bytes().data(), device.data(), bytes().size(),
                               cudaMemcpyDeviceToHost),
                    "download");
  }
};

// A tensor of the problem whose rows (or heads) lie far apart on the device.
struct SpreadTensor {
  std::byte* host = nullptr;
  CudaMemory device;
  int64_t pieces = 0;
  int64_t piece_bytes = 0;
  int64_t device_stride_bytes = 0;

  // Takes `view` of `heads` heads of `head_dim` and points it at the device.
  template <typename View>
  absl::Status Spread(View* view, const AttentionProblem& problem, int64_t rows,
                      int64_t heads, int64_t head_dim, DataType dtype,
                      int64_t spread) {
    const bool by_row = view->row_stride >= view->head_stride;
    ATTENDANT_CHECK(problem.batch == 1);
    host = static_cast<std::byte*>(const_cast<void*>(view->data));
    pieces = by_row ? rows : heads;
    piece_bytes = (by_row ? heads : rows) * head_dim * SizeOf(dtype);
    device_stride_bytes = spread * SizeOf(dtype);
    RETURN_IF_ERROR(device.Allocate(pieces * device_stride_bytes, false));
    view->data = device.data();
    (by_row ? view->row_stride : view->head_stride) = spread;
    return ToStatus(
        cudaMemset(device.data(), 0xff, pieces * device_stride_bytes),
        "poison");
  }

  absl::Status Copy(cudaMemcpyKind kind) {
    for (int64_t n = 0; n < pieces; ++n) {
      void* ends[] = {
          static_cast<std::byte*>(device.data()) + n * device_stride_bytes,
          host + n * piece_bytes};
      if (kind == cudaMemcpyDeviceToHost) std::swap(ends[0], ends[1]);
      RETURN_IF_ERROR(ToStatus(cudaMemcpy(ends[0], ends[1], piece_bytes, kind),
                               "spread copy"));
    }
    return absl::OkStatus();
  }
};

class CudaRunner : public AttentionRunner {
 public:
  explicit CudaRunner(std::span<HostProblem* const> owners)
      : owners_(owners.begin(), owners.end()) {}
  ~CudaRunner() override {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  absl::Status Prepare(std::string_view kernel, const RunOptions& options) {
    RETURN_IF_ERROR(KeepPoolMemory());
    RETURN_IF_CUDA_ERROR(
        cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    for (HostProblem* owner : owners_) {
      for (GuardedBuffer* buffer : owner->inputs()) {
        RETURN_IF_ERROR(AddMirror(buffer, &inputs_));
        RETURN_IF_ERROR(inputs_.back()->Upload());
      }
      for (GuardedBuffer* buffer : owner->outputs()) {
        RETURN_IF_ERROR(AddMirror(buffer, &outputs_));
      }
      for (AttentionProblem part : PartsOf(*owner, options)) {
        if (options.spread == 0) {
          part.q.data = OnDevice(part.q.data);
          part.k.data = OnDevice(part.k.data);
          part.v.data = OnDevice(part.v.data);
          part.out.data = OnDevice(part.out.data);
        } else {
          RETURN_IF_ERROR(Spread(*owner, options.spread, &part));
        }
        part.mask.data = OnDevice(part.mask.data);
        part.lse = static_cast<float*>(OnDevice(part.lse));
        parts_.push_back(std::move(part));
      }
    }
    ASSIGN_OR_RETURN(
        plan_,
        kernels::PlanAttention(PropertiesFor(kernel, options), parts_, kernel));
    RETURN_IF_ERROR(workspace_.Allocate(plan_.workspace_bytes(), false));
    RETURN_IF_ERROR(control_.Allocate(plan_.control_bytes(), false));
    RETURN_IF_ERROR(host_descriptors_.Allocate(plan_.descriptor_bytes(), true));
    RETURN_IF_ERROR(
        device_descriptors_.Allocate(plan_.descriptor_bytes(), false));
    RETURN_IF_CUDA_ERROR(cudaMemset(control_.data(), 0, plan_.control_bytes()));
    return absl::OkStatus();
  }

  absl::Status Run() override { return RunHolding(0); }
  absl::Status RunBesideHeldMultiprocessors(int count) override {
    return RunHolding(count);
  }

  bool repaired() const override { return repaired_; }
  int64_t workspace_bytes() const override { return plan_.workspace_bytes(); }

 private:
  absl::Status RunHolding(int multiprocessors) {
    for (HostProblem* owner : owners_) {
      owner->PoisonOutputs();
      if (HasUncoveredRows(owner->problem())) {
        kernels::reference::FillEmptyRows(owner->problem());
      }
    }
    for (const auto& mirror : outputs_) RETURN_IF_ERROR(mirror->Upload());
    for (const auto& out : spread_outputs_) {
      RETURN_IF_ERROR(out->Copy(cudaMemcpyHostToDevice));
    }
    RETURN_IF_CUDA_ERROR(
        cudaMemset(workspace_.data(), 0xff, plan_.workspace_bytes()));
    RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    kernels::LaunchContext context;
    context.stream = stream_;
    context.workspace = workspace_.data();
    context.control = control_.data();
    context.host_descriptors = host_descriptors_.data();
    context.device_descriptors = device_descriptors_.data();
    RETURN_IF_ERROR(LaunchHolding(context, multiprocessors));
    RETURN_IF_ERROR(RepairIfTold(context));
    for (const auto& mirror : outputs_) RETURN_IF_ERROR(mirror->Download());
    for (const auto& out : spread_outputs_) {
      RETURN_IF_ERROR(out->Copy(cudaMemcpyDeviceToHost));
    }
    return CheckControlIsZero();
  }

  // Launches and waits.
  absl::Status LaunchHolding(const kernels::LaunchContext& context,
                             int multiprocessors) {
    std::unique_ptr<HeldMultiprocessors> held;
    if (multiprocessors > 0) {
      ASSIGN_OR_RETURN(held, HeldMultiprocessors::Hold(multiprocessors));
    }
    RETURN_IF_ERROR(plan_.Launch(context));
    const auto limit =
        std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (held != nullptr && cudaStreamQuery(stream_) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() > limit) {
        held.reset();
        cudaStreamSynchronize(stream_);
        return absl::DeadlineExceededError(absl::StrCat(
            "not done while ", multiprocessors, " multiprocessors are held"));
      }
    }
    return ToStatus(cudaStreamSynchronize(stream_), "launch");
  }

  absl::Status AddMirror(GuardedBuffer* buffer,
                         std::vector<std::unique_ptr<Mirror>>* mirrors) {
    mirrors->push_back(std::make_unique<Mirror>());
    mirrors->back()->host = buffer;
    return mirrors->back()->device.Allocate(mirrors->back()->bytes().size(),
                                            false);
  }

  // Gives `part` (all of `owner`) tensors of its own on the device.
  absl::Status Spread(const HostProblem& owner, int64_t spread,
                      AttentionProblem* part) {
    const AttentionProblem& p = owner.problem();
    const int64_t rows_kv = owner.options().seqlen_kv;
    const auto add = [&](auto* view, int64_t rows, int64_t heads,
                         int64_t head_dim, DataType dtype, auto* list) {
      list->push_back(std::make_unique<SpreadTensor>());
      return list->back()->Spread(view, p, rows, heads, head_dim, dtype,
                                  spread);
    };
    RETURN_IF_ERROR(add(&part->q, p.rows_q, p.num_q_heads, p.head_dim, p.dtype,
                        &spread_inputs_));
    RETURN_IF_ERROR(add(&part->k, rows_kv, p.num_kv_heads, p.head_dim, p.dtype,
                        &spread_inputs_));
    RETURN_IF_ERROR(add(&part->v, rows_kv, p.num_kv_heads, p.head_dim_v,
                        p.dtype, &spread_inputs_));
    RETURN_IF_ERROR(add(&part->out, p.rows_q, p.num_q_heads, p.head_dim_v,
                        p.output_dtype, &spread_outputs_));
    for (const auto& input : spread_inputs_) {
      RETURN_IF_ERROR(input->Copy(cudaMemcpyHostToDevice));
    }
    return absl::OkStatus();
  }

  void* OnDevice(const void* host) const {
    if (host == nullptr) return nullptr;
    for (const auto* mirrors : {&inputs_, &outputs_}) {
      for (const auto& mirror : *mirrors) {
        if (!mirror->host->Contains(host)) continue;
        return static_cast<std::byte*>(mirror->device.data()) +
               (static_cast<const std::byte*>(host) - mirror->bytes().data());
      }
    }
    ATTENDANT_CHECK(false);
  }

  absl::Status RepairIfTold(const kernels::LaunchContext& context) {
    repaired_ = false;
    for (const int64_t offset : plan_.repair_flag_offsets()) {
      int32_t flag = 0;
      RETURN_IF_CUDA_ERROR(
          cudaMemcpy(&flag, static_cast<std::byte*>(control_.data()) + offset,
                     4, cudaMemcpyDeviceToHost));
      repaired_ = repaired_ || flag != 0;
    }
    if (!repaired_) return absl::OkStatus();
    RETURN_IF_ERROR(plan_.Repair(context));
    return ToStatus(cudaStreamSynchronize(stream_), "repair");
  }

  absl::Status CheckControlIsZero() const {
    std::vector<uint8_t> control(plan_.control_bytes());
    RETURN_IF_CUDA_ERROR(cudaMemcpy(control.data(), control_.data(),
                                    control.size(), cudaMemcpyDeviceToHost));
    for (size_t n = 0; n < control.size(); ++n) {
      if (control[n] != 0) {
        return absl::InternalError(
            absl::StrCat("control byte ", n, " is not zero after the launch"));
      }
    }
    return absl::OkStatus();
  }

  std::vector<HostProblem*> owners_;
  cudaStream_t stream_ = nullptr;
  std::vector<std::unique_ptr<Mirror>> inputs_, outputs_;
  std::vector<std::unique_ptr<SpreadTensor>> spread_inputs_, spread_outputs_;
  std::vector<AttentionProblem> parts_;
  AttentionPlan plan_;
  CudaMemory workspace_, control_, host_descriptors_, device_descriptors_;
  bool repaired_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<AttentionRunner>> CreateCudaRunner(
    std::string_view kernel, std::span<HostProblem* const> problems,
    const RunOptions& options) {
  auto runner = std::make_unique<CudaRunner>(problems);
  RETURN_IF_ERROR(runner->Prepare(kernel, options));
  return runner;
}

}  // namespace attendant::testing
