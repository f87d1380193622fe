#include "client/cpp/c_api/c_result.h"

#include <utility>
#include <vector>

using attendant::client::AttendResult;

// Its reply's pointers lead into `answer`, so it never moves.
struct attendant_result {
  AttendResult answer;
  attendant_reply reply{};
};

namespace attendant::client {
namespace {

attendant_tensor View(const Tensor& tensor) {
  attendant_tensor view{};
  view.data = tensor.data;
  view.shape = tensor.shape.data();
  view.rank = static_cast<int32_t>(tensor.shape.size());
  view.dtype = static_cast<int32_t>(tensor.dtype);
  const bool on_gpu = tensor.cuda_device >= 0;
  view.device_type = on_gpu ? ATTENDANT_CUDA : ATTENDANT_CPU;
  view.device_index = on_gpu ? tensor.cuda_device : 0;
  return view;
}

attendant_stage_times Times(const StageTimes& times) {
  return {times.receive_ns,  times.queue_ns, times.upload_ns, times.kernel_ns,
          times.download_ns, times.send_ns,  times.total_ns};
}

struct OwnedInfo : attendant_server_info {
  ServerInfo info;
  std::vector<attendant_device> device_rows;
  std::vector<attendant_bound> bound_rows;
  std::vector<attendant_capability> capability_rows;
  std::vector<std::vector<int32_t>> dtypes;  // reserved: never moves
};

std::vector<attendant_bound> BoundRows(const Bounds& bounds) {
  std::vector<attendant_bound> rows;
  for (const BoundField& field : BoundFields()) {
    rows.push_back({field.name, bounds.*field.value});
  }
  return rows;
}

const std::vector<int32_t>& Numbers(const std::vector<DataType>& dtypes,
                                    OwnedInfo* owner) {
  std::vector<int32_t>& numbers = owner->dtypes.emplace_back();
  for (DataType dtype : dtypes) numbers.push_back(static_cast<int32_t>(dtype));
  return numbers;
}

attendant_capability CapabilityRow(const Capability& from, OwnedInfo* owner) {
  attendant_capability to{};
  to.kernel = from.kernel.c_str();
  to.backend = Name(from.backend);
  to.op = from.op.c_str();
  const std::vector<int32_t>& inputs = Numbers(from.input_dtypes, owner);
  const std::vector<int32_t>& outputs = Numbers(from.output_dtypes, owner);
  to.input_dtypes = inputs.data();
  to.output_dtypes = outputs.data();
  to.num_input_dtypes = static_cast<int64_t>(inputs.size());
  to.num_output_dtypes = static_cast<int64_t>(outputs.size());
  to.max_head_dim = from.max_head_dim;
  to.min_compute_capability = from.min_compute_capability;
  to.max_compute_capability = from.max_compute_capability;
  to.boolean_mask = from.boolean_mask;
  to.additive_mask = from.additive_mask;
  to.alibi = from.alibi;
  to.softcap = from.softcap;
  to.sinks = from.sinks;
  to.window = from.window;
  return to;
}

}  // namespace

attendant_result* MakeResult(AttendResult answer) {
  auto* result = new attendant_result{std::move(answer), {}};
  const AttendResult& from = result->answer;
  attendant_reply& reply = result->reply;
  reply.out = View(from.out);
  if (from.lse.dtype != DataType::kUnset) reply.lse = View(from.lse);
  reply.request_id = from.request_id.c_str();
  reply.backend = Name(from.served_by.backend);
  reply.device_uuid = from.served_by.device_uuid.c_str();
  reply.kernel = from.served_by.kernel.c_str();
  reply.door = from.door.c_str();
  reply.device_index = from.served_by.device_index;
  reply.compute_dtype = static_cast<int32_t>(from.served_by.compute_dtype);
  reply.exposed = Times(from.exposed);
  reply.busy = Times(from.busy);
  reply.batch_requests = from.batch_requests;
  reply.batch_tokens = from.batch_tokens;
  reply.workspace_bytes = from.workspace_bytes;
  reply.input_bytes = from.input_bytes;
  reply.output_bytes = from.output_bytes;
  reply.attempts = from.attempts;
  reply.client_ns = from.client_ns;
  return result;
}

attendant_server_info* MakeServerInfo(ServerInfo info) {
  auto* owned = new OwnedInfo{};
  owned->info = std::move(info);
  const ServerInfo& from = owned->info;
  for (const Device& device : from.devices) {
    owned->device_rows.push_back(
        {device.index, device.compute_capability, device.num_sms,
         device.memory_bytes, device.uuid.c_str(), device.name.c_str(),
         Name(device.backend), device.instruction_set.c_str()});
  }
  owned->bound_rows = BoundRows(from.bounds);
  owned->dtypes.reserve(2 * from.capabilities.size());
  for (const Capability& row : from.capabilities) {
    owned->capability_rows.push_back(CapabilityRow(row, owned));
  }
  owned->version = from.version.c_str();
  owned->build = from.build.c_str();
  owned->uptime_ns = from.uptime_ns;
  owned->devices = owned->device_rows.data();
  owned->bounds = owned->bound_rows.data();
  owned->capabilities = owned->capability_rows.data();
  owned->num_devices = static_cast<int64_t>(owned->device_rows.size());
  owned->num_bounds = static_cast<int64_t>(owned->bound_rows.size());
  owned->num_capabilities = static_cast<int64_t>(owned->capability_rows.size());
  return owned;
}

}  // namespace attendant::client

extern "C" {

const attendant_reply* attendant_result_reply(const attendant_result* result) {
  return &result->reply;
}

void attendant_result_free(attendant_result* result) { delete result; }

void attendant_server_info_free(attendant_server_info* info) {
  delete static_cast<attendant::client::OwnedInfo*>(info);
}

}  // extern "C"
