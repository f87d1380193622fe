#include "server/selftest/direct_call.h"

#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <future>
#include <utility>

#include "kernels/attention.h"
#include "kernels/base/status_macros.h"
#include "server/calls/tensor_copy.h"
#include "server/request/problem_validator.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

std::string BytesAt(const HostBlock& block, int64_t offset, int64_t bytes) {
  return bytes == 0
             ? std::string()
             : std::string(reinterpret_cast<const char*>(block.data()) + offset,
                           static_cast<size_t>(bytes));
}

// The table's own literal, which a problem may point to; empty if the device
// has no such row or it does not serve the problem.
absl::StatusOr<std::string_view> RowNamed(
    const kernels::DeviceProperties& device, kernels::AttentionProblem problem,
    std::string_view name) {
  for (const kernels::KernelEntry& entry : kernels::Kernels()) {
    if (entry.capability.kernel != name) continue;
    problem.kernel = entry.capability.kernel;
    RETURN_IF_ERROR(
        kernels::PlanAttention(device, {&problem, 1}, problem.kernel).status());
    return problem.kernel;
  }
  return absl::UnimplementedError("there is no such kernel in this build");
}

}  // namespace

std::string DirectAnswer::output_data() const {
  return BytesAt(*job->output, job->request->output_offset,
                 job->request->wire_output_bytes());
}

std::string DirectAnswer::lse_data() const {
  return BytesAt(*job->output, job->request->lse_offset,
                 job->request->lse_bytes);
}

absl::StatusOr<DirectAnswer> CallEngine(AttentionEngine& engine,
                                        const Bounds& bounds,
                                        const v1::AttendRequest& request,
                                        std::string_view only_kernel) {
  const grpc::Slice slice(request.SerializeAsString());
  const grpc::ByteBuffer message(&slice, 1);
  const kernels::DeviceProperties& device = engine.device().properties;
  ASSIGN_OR_RETURN(const ParsedRequest parsed, ParseAttendRequest(message));
  ASSIGN_OR_RETURN(std::unique_ptr<ValidatedRequest> validated,
                   ValidateRequest(parsed, bounds, device));
  if (!only_kernel.empty()) {
    ASSIGN_OR_RETURN(validated->problem.kernel,
                     RowNamed(device, validated->problem, only_kernel));
  }
  const auto pieces = CutIntoPieces(parsed, *validated, int64_t{1} << 30);
  DirectAnswer answer;
  ASSIGN_OR_RETURN(answer.job, engine.Admit(std::move(validated),
                                            Clock::now() + kSelftestPatience));
  std::byte* input = answer.job->input.data();
  for (const CopyPiece& piece : pieces) {
    RETURN_IF_ERROR(CopyPieceInto(message, piece, input));
  }
  answer.input.assign(input, input + answer.job->input.bytes());
  std::promise<JobResult> done;
  answer.job->done = [&done](JobResult result) {
    done.set_value(std::move(result));
  };
  engine.Submit(answer.job);
  answer.result = done.get_future().get();
  RETURN_IF_ERROR(answer.result.status);
  answer.problem = Placed(*answer.job->request, answer.input.data(),
                          answer.job->output->data());
  return answer;
}

}  // namespace attendant::server
