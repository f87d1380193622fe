#include "tests/benchmark/attention_c.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/thread_pool.h"
#ifdef ATTENDANT_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace {

using attendant::kernels::AttentionPlan;
using attendant::kernels::AttentionProblem;
using attendant::kernels::DataType;
using attendant::kernels::DeviceProperties;
using attendant::kernels::InputTensor;
using attendant::kernels::LaunchContext;
using attendant::kernels::OutputTensor;
using attendant::kernels::SequenceBounds;

enum class Place { kHost, kPinned, kDevice };

#ifdef ATTENDANT_WITH_CUDA
absl::Status ToStatus(cudaError_t error) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(cudaGetErrorString(error));
}
#endif

// Memory of one place, zero at first, freed with the owner.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { Free(); }

  absl::Status Allocate(Place place, int64_t bytes) {
    place_ = place;
    const size_t size = static_cast<size_t>(bytes + 256) / 256 * 256;
    if (place == Place::kHost) {
      data_ = std::aligned_alloc(256, size);
      if (data_ == nullptr) return absl::ResourceExhaustedError("host memory");
      std::memset(data_, 0, size);
      return absl::OkStatus();
    }
#ifdef ATTENDANT_WITH_CUDA
    if (place == Place::kPinned) return ToStatus(cudaMallocHost(&data_, size));
    RETURN_IF_ERROR(ToStatus(cudaMalloc(&data_, size)));
    return ToStatus(cudaMemset(data_, 0, size));
#else
    return absl::UnimplementedError("built without CUDA");
#endif
  }
  void* data() const { return data_; }

 private:
  void Free() {
    if (place_ == Place::kHost) std::free(data_);
#ifdef ATTENDANT_WITH_CUDA
    if (place_ == Place::kPinned) cudaFreeHost(data_);
    if (place_ == Place::kDevice) cudaFree(data_);
#endif
  }
  Place place_ = Place::kHost;
  void* data_ = nullptr;
};

absl::StatusOr<DeviceProperties> CurrentDevice(int32_t num_threads) {
  DeviceProperties properties;
  properties.num_sms = num_threads;
  if (num_threads > 0) return properties;
#ifdef ATTENDANT_WITH_CUDA
  int device = 0;
  RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device)));
  int major = 0, minor = 0, shared_memory = 0;
  const std::pair<cudaDeviceAttr, int*> attributes[] = {
      {cudaDevAttrComputeCapabilityMajor, &major},
      {cudaDevAttrComputeCapabilityMinor, &minor},
      {cudaDevAttrMultiProcessorCount, &properties.num_sms},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared_memory}};
  for (const auto& [name, value] : attributes) {
    RETURN_IF_ERROR(ToStatus(cudaDeviceGetAttribute(value, name, device)));
  }
  properties.compute_capability = 10 * major + minor;
  properties.shared_memory_per_block_optin = shared_memory;
  return properties;
#else
  return absl::UnimplementedError(
      "built without CUDA: num_threads must be > 0");
#endif
}

template <typename View>
View ToView(const AttendantTensor& tensor) {
  return View{tensor.data, tensor.batch_stride, tensor.row_stride,
              tensor.head_stride};
}

AttentionProblem ToProblem(const AttendantProblem& from) {
  AttentionProblem to;
  to.dtype = static_cast<DataType>(from.dtype);
  to.output_dtype = static_cast<DataType>(from.output_dtype);
  to.batch = from.batch;
  to.num_q_heads = to.whole_num_q_heads = from.num_q_heads;
  to.num_kv_heads = to.whole_num_kv_heads = from.num_kv_heads;
  to.head_dim = from.head_dim;
  to.head_dim_v = from.head_dim_v;
  to.rows_q = from.rows_q;
  to.q = ToView<InputTensor>(from.q);
  to.k = ToView<InputTensor>(from.k);
  to.v = ToView<InputTensor>(from.v);
  to.out = ToView<OutputTensor>(from.out);
  to.lse = from.lse;
  to.lse_batch_stride = from.lse_batch_stride;
  to.lse_head_stride = from.lse_head_stride;
  for (int64_t n = 0; n < from.num_sequences; ++n) {
    const AttendantSequence& sequence = from.sequences[n];
    to.sequences.push_back({.q_begin = sequence.q_begin,
                            .len_q = sequence.len_q,
                            .kv_begin = sequence.kv_begin,
                            .len_kv = sequence.len_kv,
                            .diagonal_shift = sequence.diagonal_shift,
                            .whole_len_q = sequence.len_q});
  }
  to.window_left = from.window_left;
  to.window_right = from.window_right;
  to.softmax_scale = from.softmax_scale;
  to.softcap = from.softcap;
  to.causal = from.causal != 0;
  return to;
}

void WriteError(const absl::Status& status, char* error, int64_t error_size) {
  if (error == nullptr || error_size <= 0) return;
  const std::string text = status.ToString();
  const size_t size =
      std::min(text.size(), static_cast<size_t>(error_size - 1));
  std::memcpy(error, text.data(), size);
  error[size] = '\0';
}

// A line of the caches.
typedef uint64_t Line __attribute__((vector_size(64)));

// `streams` equal parts, 4 lines of each in turn: the more there are, the more
// pages' beginnings are waited for at once.
#if defined(__x86_64__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
uint64_t
ReadPiece(const Line* begin, int64_t lines, int64_t streams) {
  const int64_t part = lines / streams / 4 * 4;
  Line a = {}, b = {}, c = {}, d = {};
  for (int64_t i = 0; i < part; i += 4) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      const Line* from = begin + stream * part + i;
      a ^= from[0];
      b ^= from[1];
      c ^= from[2];
      d ^= from[3];
    }
  }
  for (int64_t i = streams * part; i < lines; ++i) a ^= begin[i];
  a ^= b ^ c ^ d;
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum ^= a[i];
  return sum;
}

}  // namespace

struct AttendantPlan {
  std::vector<AttentionProblem> problems;
  std::vector<std::vector<float>> slopes, sinks;  // what the problems name
  AttentionPlan plan;
  std::unique_ptr<attendant::kernels::cpu::ThreadPool> thread_pool;
  Memory workspace, control, host_descriptors, device_descriptors;

  absl::Status Create(const AttendantProblem* from, int64_t num_problems,
                      const char* kernel, int32_t num_threads);
  LaunchContext Context(void* stream) const {
    return {.stream = stream,
            .thread_pool = thread_pool.get(),
            .workspace = workspace.data(),
            .control = control.data(),
            .host_descriptors = host_descriptors.data(),
            .device_descriptors = device_descriptors.data()};
  }
  absl::StatusOr<bool> Repair(void* stream);
};

absl::Status AttendantPlan::Create(const AttendantProblem* from,
                                   int64_t num_problems, const char* kernel,
                                   int32_t num_threads) {
  ASSIGN_OR_RETURN(const DeviceProperties device, CurrentDevice(num_threads));
  problems.reserve(num_problems);
  slopes.resize(num_problems);
  sinks.resize(num_problems);
  for (int64_t n = 0; n < num_problems; ++n) {
    AttentionProblem& problem = problems.emplace_back(ToProblem(from[n]));
    if (from[n].alibi_slopes != nullptr) {
      slopes[n].assign(from[n].alibi_slopes,
                       from[n].alibi_slopes + problem.num_q_heads);
      problem.alibi_slopes = slopes[n];
    }
    if (from[n].sinks != nullptr) {
      sinks[n].assign(from[n].sinks, from[n].sinks + problem.num_q_heads);
      problem.sinks = sinks[n];
    }
  }
  ASSIGN_OR_RETURN(
      plan, attendant::kernels::PlanAttention(device, problems,
                                              kernel == nullptr ? "" : kernel));
  const bool host = num_threads > 0;
  if (host) {
    thread_pool =
        std::make_unique<attendant::kernels::cpu::ThreadPool>(num_threads);
  }
  const Place device_place = host ? Place::kHost : Place::kDevice;
  RETURN_IF_ERROR(workspace.Allocate(device_place, plan.workspace_bytes()));
  RETURN_IF_ERROR(control.Allocate(device_place, plan.control_bytes()));
  RETURN_IF_ERROR(host_descriptors.Allocate(
      host ? Place::kHost : Place::kPinned, plan.descriptor_bytes()));
  return device_descriptors.Allocate(device_place, plan.descriptor_bytes());
}

absl::StatusOr<bool> AttendantPlan::Repair(void* stream) {
  bool needed = false;
#ifdef ATTENDANT_WITH_CUDA
  const auto cuda_stream = static_cast<cudaStream_t>(stream);
  for (const int64_t offset : plan.repair_flag_offsets()) {
    int32_t flag = 0;
    RETURN_IF_ERROR(ToStatus(
        cudaMemcpyAsync(&flag, static_cast<std::byte*>(control.data()) + offset,
                        sizeof flag, cudaMemcpyDeviceToHost, cuda_stream)));
    RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(cuda_stream)));
    needed = needed || flag != 0;
  }
#endif
  if (needed) RETURN_IF_ERROR(plan.Repair(Context(stream)));
  return needed;
}

AttendantPlan* attendant_plan_create(const AttendantProblem* problems,
                                     int64_t num_problems, const char* kernel,
                                     int32_t num_threads, char* error,
                                     int64_t error_size) {
  auto plan = std::make_unique<AttendantPlan>();
  const absl::Status status =
      plan->Create(problems, num_problems, kernel, num_threads);
  if (status.ok()) return plan.release();
  WriteError(status, error, error_size);
  return nullptr;
}

int32_t attendant_plan_launch(AttendantPlan* plan, void* stream, char* error,
                              int64_t error_size) {
  const absl::Status status = plan->plan.Launch(plan->Context(stream));
  if (status.ok()) return 0;
  WriteError(status, error, error_size);
  return 1;
}

int32_t attendant_plan_repair(AttendantPlan* plan, void* stream, char* error,
                              int64_t error_size) {
  const absl::StatusOr<bool> repaired = plan->Repair(stream);
  if (repaired.ok()) return *repaired ? 1 : 0;
  WriteError(repaired.status(), error, error_size);
  return -1;
}

const char* attendant_plan_kernel(const AttendantPlan* plan, int64_t index) {
  return plan->plan.kernel_name(index).data();  // a literal of the table
}

int64_t attendant_plan_device_bytes(const AttendantPlan* plan) {
  return plan->plan.workspace_bytes() + plan->plan.control_bytes() +
         plan->plan.descriptor_bytes();
}

int64_t attendant_plan_workspace_bytes(const AttendantPlan* plan) {
  return plan->plan.workspace_bytes();
}

uint64_t attendant_plan_read(AttendantPlan* plan, const void* data,
                             int64_t bytes, int32_t streams) {
  constexpr int64_t kPiece = 1 << 20;
  std::atomic<uint64_t> all = 0;
  plan->thread_pool->ParallelFor(
      (bytes + kPiece - 1) / kPiece, [&](int64_t piece, int) {
        const auto* begin = static_cast<const Line*>(data) +
                            piece * kPiece / static_cast<int64_t>(sizeof(Line));
        const int64_t size = std::min(kPiece, bytes - piece * kPiece);
        all ^= ReadPiece(begin, size / static_cast<int64_t>(sizeof(Line)),
                         streams);
      });
  return all;
}

void attendant_plan_destroy(AttendantPlan* plan) { delete plan; }
