// What a server is, what it can do, and every bound it enforces.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/attend_args.h"
#include "client/cpp/tensor.h"

namespace attendant::client {

struct Device {
  int32_t index = 0;
  std::string uuid;
  std::string name;
  Backend backend = Backend::kUnset;
  int64_t memory_bytes = 0;
  int32_t compute_capability = 0;  // 90 for Hopper, 0 for a CPU
  int32_t num_sms = 0;             // CPU: worker threads
  std::string instruction_set;
};

// A request beyond one of these gets INVALID_ARGUMENT that names it.
struct Bounds {
  int64_t max_request_bytes = 0;
  int64_t max_response_bytes = 0;
  int64_t max_head_dim = 0;
  int64_t max_batch = 0;
  int64_t max_heads = 0;
  int64_t max_seqlen = 0;
  int64_t max_work_flops = 0;
  int64_t max_queued_requests = 0;
  int64_t max_queued_bytes = 0;
  int64_t max_request_id_chars = 0;
  int64_t region_alignment_bytes = 0;
  int64_t default_deadline_ms = 0;
  int64_t max_header_bytes = 0;
  int64_t max_expanded_bytes = 0;
  int64_t host_pool_bytes = 0;
  int64_t device_pool_bytes = 0;
  int64_t max_queued_flops = 0;
  int64_t max_uploads = 0;
  int64_t host_memory_bound_bytes = 0;
  int64_t max_regions = 0;
  int64_t max_regions_per_owner = 0;
  int64_t max_region_bytes = 0;
  int64_t max_region_bytes_per_owner = 0;
  int64_t region_idle_seconds = 0;
  int64_t max_chunk_bytes = 0;
  int64_t max_streams = 0;
  int64_t stream_memory_bytes = 0;
};

// A bound by its name in the proto, which is the struct's too.
struct BoundField {
  const char* name;
  int64_t Bounds::*value;
};

// Every one of them, in the proto's order.
std::span<const BoundField> BoundFields();

// One row of the table that says which kernel runs what.
struct Capability {
  std::string kernel;
  Backend backend = Backend::kUnset;
  std::string op;
  int32_t min_compute_capability = 0;
  int32_t max_compute_capability = 0;
  std::vector<DataType> input_dtypes;
  std::vector<DataType> output_dtypes;
  int64_t max_head_dim = 0;
  bool boolean_mask = false;
  bool additive_mask = false;
  bool alibi = false;
  bool softcap = false;
  bool sinks = false;
  bool window = false;
};

struct ServerInfo {
  std::string version;
  std::string build;
  int64_t uptime_ns = 0;
  std::vector<Device> devices;
  Bounds bounds;
  std::vector<Capability> capabilities;
  // What memory the server shares ("memfd", ...), and the path of the socket
  // that takes descriptors; see shared_tensors.h.
  std::vector<std::string> region_kinds;
  std::string region_socket;
};

}  // namespace attendant::client
