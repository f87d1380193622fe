#include "server/engine/cuda_port.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/fill.h"
#include "kernels/cuda/profile_range.h"

namespace attendant::server {

using kernels::cuda::Event;
using kernels::cuda::ProfileRange;
using kernels::cuda::Stream;

absl::StatusOr<std::unique_ptr<CudaPort>> CudaPort::Create() {
  std::unique_ptr<CudaPort> port(new CudaPort);
  for (int queue = 0; queue < kNumQueues; ++queue) {
    ASSIGN_OR_RETURN(port->streams_[queue], Stream::Create());
    for (Event& mark : port->marks_[queue]) {
      ASSIGN_OR_RETURN(mark, Event::Create(Event::Kind::kOrder));
    }
  }
  return port;
}

// A pitch is at most 2^31 - 1 bytes; a single run may be longer.
absl::Status CudaPort::Copy(Queue queue, void* to, const void* from,
                            int64_t pitch, int64_t width, int64_t height) {
  if (height == 1) {
    RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(to, from, static_cast<size_t>(width),
                                         cudaMemcpyDefault, stream(queue)));
    return absl::OkStatus();
  }
  RETURN_IF_CUDA_ERROR(cudaMemcpy2DAsync(
      to, static_cast<size_t>(pitch), from, static_cast<size_t>(pitch),
      static_cast<size_t>(width), static_cast<size_t>(height),
      cudaMemcpyDefault, stream(queue)));
  return absl::OkStatus();
}

absl::Status CudaPort::Upload(Queue queue, void* device, const void* host,
                              int64_t pitch, int64_t width, int64_t height) {
  const ProfileRange range("upload");
  return Copy(queue, device, host, pitch, width, height);
}

absl::Status CudaPort::Download(Queue queue, void* host, const void* device,
                                int64_t pitch, int64_t width, int64_t height) {
  const ProfileRange range("download");
  return Copy(queue, host, device, pitch, width, height);
}

absl::Status CudaPort::FillZero(Queue queue, void* device, int64_t bytes) {
  return kernels::cuda::FillZero(device, bytes, stream(queue));
}

absl::Status CudaPort::FillFloat(Queue queue, float* device, int64_t count,
                                 float value) {
  return kernels::cuda::FillFloat(device, count, value, stream(queue));
}

absl::Status CudaPort::Launch(const kernels::AttentionPlan& plan,
                              kernels::LaunchContext context) {
  const ProfileRange range("launch");
  context.stream = stream(Queue::kKernel);
  RETURN_IF_ERROR(plan.Launch(context));
  return LastError("attention launch");
}

absl::Status CudaPort::Repair(const kernels::AttentionPlan& plan,
                              kernels::LaunchContext context) {
  const ProfileRange range("repair");
  context.stream = stream(Queue::kKernel);
  RETURN_IF_ERROR(plan.Repair(context));
  return LastError("attention repair");
}

absl::Status CudaPort::ReadFlag(int32_t* host, const void* device) {
  RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(host, device, sizeof(int32_t),
                                       cudaMemcpyDeviceToHost,
                                       stream(Queue::kKernel)));
  return absl::OkStatus();
}

absl::Status CudaPort::Mark(Queue queue, Queue stage, int slot) {
  return marks_[static_cast<int>(stage)][slot].Record(stream(queue));
}

absl::StatusOr<bool> CudaPort::IsReached(Queue stage, int slot) {
  return marks_[static_cast<int>(stage)][slot].IsDone();
}

absl::Status CudaPort::Synchronize() {
  for (const Stream& stream : streams_) RETURN_IF_ERROR(stream.Synchronize());
  return absl::OkStatus();
}

bool CudaPort::IsSticky(const absl::Status& status) const {
  return kernels::cuda::IsSticky(status);
}

absl::Status CudaPort::LastError(const char* what) {
  return kernels::cuda::CudaStatus(cudaGetLastError(), what);
}

}  // namespace attendant::server
