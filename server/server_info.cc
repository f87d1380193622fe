#include "server/server_info.h"

#include "kernels/attention.h"

namespace attendant::server {
namespace {

bool RunsOn(const kernels::Capability& row, const DeviceDescription& device) {
  const int capability = device.properties.compute_capability;
  return row.min_compute_capability <= capability &&
         capability <= row.max_compute_capability;
}

void Describe(const kernels::Capability& row, v1::Capability* out) {
  out->set_kernel(std::string(row.kernel));
  out->set_op(std::string(row.op));
  out->set_backend(row.max_compute_capability == 0 ? v1::BACKEND_CPU
                                                   : v1::BACKEND_CUDA);
  out->set_min_compute_capability(row.min_compute_capability);
  out->set_max_compute_capability(row.max_compute_capability);
  if (row.fp32) out->add_input_dtypes(v1::DATA_TYPE_FP32);
  if (row.fp16) out->add_input_dtypes(v1::DATA_TYPE_FP16);
  if (row.bf16) out->add_input_dtypes(v1::DATA_TYPE_BF16);
  // The input's own type, or fp32.
  *out->mutable_output_dtypes() = out->input_dtypes();
  if (!row.fp32) out->add_output_dtypes(v1::DATA_TYPE_FP32);
  out->set_max_head_dim(row.max_head_dim);
  out->set_boolean_mask(row.boolean_mask);
  out->set_additive_mask(row.additive_mask);
  out->set_alibi(row.alibi);
  out->set_softcap(row.softcap);
  out->set_sinks(row.sinks);
  out->set_window(row.window);
}

void Describe(const DeviceDescription& device, v1::Device* out) {
  out->set_index(device.index);
  out->set_uuid(device.uuid);
  out->set_name(device.name);
  out->set_backend(device.is_cuda ? v1::BACKEND_CUDA : v1::BACKEND_CPU);
  out->set_memory_bytes(device.memory_bytes);
  out->set_compute_capability(device.properties.compute_capability);
  out->set_num_sms(device.properties.num_sms);
  out->set_instruction_set(device.instruction_set);
}

void Describe(const Bounds& bounds, v1::Bounds* out) {
  out->set_max_request_bytes(bounds.max_request_bytes);
  out->set_max_response_bytes(bounds.max_response_bytes);
  out->set_max_head_dim(bounds.max_head_dim);
  out->set_max_batch(bounds.max_batch);
  out->set_max_heads(bounds.max_heads);
  out->set_max_seqlen(bounds.max_seqlen);
  out->set_max_work_flops(static_cast<int64_t>(bounds.max_work_flops));
  out->set_max_queued_requests(bounds.max_queued_requests);
  out->set_max_queued_bytes(bounds.max_queued_bytes);
  out->set_max_request_id_chars(bounds.max_request_id_chars);
  out->set_region_alignment_bytes(bounds.region_alignment_bytes);
  out->set_default_deadline_ms(bounds.default_deadline_ms);
  out->set_max_header_bytes(bounds.max_header_bytes);
  out->set_max_expanded_bytes(bounds.max_expanded_bytes);
  out->set_host_pool_bytes(bounds.host_pool_bytes);
  out->set_device_pool_bytes(bounds.device_pool_bytes);
  out->set_max_queued_flops(static_cast<int64_t>(bounds.max_queued_flops));
  out->set_max_uploads(bounds.max_uploads);
  out->set_host_memory_bound_bytes(bounds.host_memory_bound_bytes);
  out->set_max_regions(bounds.max_regions);
  out->set_max_regions_per_owner(bounds.max_regions_per_owner);
  out->set_max_region_bytes(bounds.max_region_bytes);
  out->set_max_region_bytes_per_owner(bounds.max_region_bytes_per_owner);
  out->set_region_idle_seconds(bounds.region_idle_seconds);
  out->set_max_chunk_bytes(bounds.max_chunk_bytes);
  out->set_max_streams(bounds.max_streams);
  out->set_stream_memory_bytes(bounds.stream_memory_bytes);
}

}  // namespace

v1::GetServerInfoResponse DescribeServer(const DeviceDescription& device,
                                         const Bounds& bounds) {
  v1::GetServerInfoResponse info;
  info.set_version(ServerVersion());
  info.set_build(ServerBuild());
  Describe(device, info.add_devices());
  Describe(bounds, info.mutable_bounds());
  for (const kernels::KernelEntry& kernel : kernels::Kernels()) {
    if (RunsOn(kernel.capability, device)) {
      Describe(kernel.capability, info.add_capabilities());
    }
  }
  return info;
}

std::string ServerVersion() { return ATTENDANT_VERSION; }

std::string ServerBuild() { return ATTENDANT_BUILD; }

}  // namespace attendant::server
