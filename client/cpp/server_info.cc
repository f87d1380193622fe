#include "client/cpp/server_info.h"

namespace attendant::client {
namespace {

constexpr BoundField kBoundFields[] = {
    {"max_request_bytes", &Bounds::max_request_bytes},
    {"max_response_bytes", &Bounds::max_response_bytes},
    {"max_head_dim", &Bounds::max_head_dim},
    {"max_batch", &Bounds::max_batch},
    {"max_heads", &Bounds::max_heads},
    {"max_seqlen", &Bounds::max_seqlen},
    {"max_work_flops", &Bounds::max_work_flops},
    {"max_queued_requests", &Bounds::max_queued_requests},
    {"max_queued_bytes", &Bounds::max_queued_bytes},
    {"max_request_id_chars", &Bounds::max_request_id_chars},
    {"region_alignment_bytes", &Bounds::region_alignment_bytes},
    {"default_deadline_ms", &Bounds::default_deadline_ms},
    {"max_header_bytes", &Bounds::max_header_bytes},
    {"max_expanded_bytes", &Bounds::max_expanded_bytes},
    {"host_pool_bytes", &Bounds::host_pool_bytes},
    {"device_pool_bytes", &Bounds::device_pool_bytes},
    {"max_queued_flops", &Bounds::max_queued_flops},
    {"max_uploads", &Bounds::max_uploads},
    {"host_memory_bound_bytes", &Bounds::host_memory_bound_bytes},
    {"max_regions", &Bounds::max_regions},
    {"max_regions_per_owner", &Bounds::max_regions_per_owner},
    {"max_region_bytes", &Bounds::max_region_bytes},
    {"max_region_bytes_per_owner", &Bounds::max_region_bytes_per_owner},
    {"region_idle_seconds", &Bounds::region_idle_seconds},
    {"max_chunk_bytes", &Bounds::max_chunk_bytes},
    {"max_streams", &Bounds::max_streams},
    {"stream_memory_bytes", &Bounds::stream_memory_bytes},
};

}  // namespace

std::span<const BoundField> BoundFields() { return kBoundFields; }

}  // namespace attendant::client
