// Every bound a request is held against; published by GetServerInfo.
#pragma once

#include <cstdint>

namespace attendant::server {

// A message's bytes beside its tensors: room for lengths and starts of
// max_batch sequences.
inline constexpr int64_t kMaxHeaderBytes = int64_t{32} << 20;

// Of AttendStream: data of one chunk, streams of one upload, and messages of
// one stream in memory (one arriving, two being copied).
inline constexpr int64_t kMaxChunkBytes = int64_t{4} << 20;
inline constexpr int64_t kMaxStreams = 64;
inline constexpr int kStreamMessages = 3;
// A message of AttendStream beside its data.
inline constexpr int64_t kMaxChunkOverhead = 1024;
inline constexpr int64_t kStreamBufferBytes =
    kStreamMessages * (kMaxChunkBytes + kMaxChunkOverhead);

// What one tensor may span, gaps between its rows included, whatever the
// message or the region may hold: the blocks of a request, which add up its
// tensors in the type they are computed in, stay far from the end of 64 bits.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 58;

struct Bounds {
  int64_t max_request_bytes = int64_t{1} << 30;   // one message, inline tensors
  int64_t max_response_bytes = int64_t{1} << 30;  // output and lse
  int64_t max_head_dim = 256;
  int64_t max_batch = int64_t{1} << 20;
  int64_t max_heads = int64_t{1} << 16;
  // Of one sequence: positions and their differences fit 32 bits.
  int64_t max_seqlen = int64_t{1} << 30;
  double max_work_flops = 1e16;  // of one request
  int64_t max_queued_requests = 1024;
  int64_t max_queued_bytes = int64_t{4} << 30;
  double max_queued_flops = 1e17;
  int64_t max_request_id_chars = 128;
  int64_t region_alignment_bytes = 256;
  int64_t default_deadline_ms = 60'000;
  int64_t max_header_bytes = kMaxHeaderBytes;  // fixed
  // Of q, k or v, each entry counted though strides of 0 may share it: a short
  // message cannot ask for work items without end.
  int64_t max_expanded_bytes = int64_t{1} << 40;
  // What a server has; set when it starts.
  int64_t host_pool_bytes = 0;
  int64_t device_pool_bytes = 0;  // with scratch; 0 = computes on the host
  int64_t max_uploads = 0;
  int64_t host_memory_bound_bytes = 0;

  // Regions, see server/regions; max_regions 0 = none are served.
  int64_t max_regions = 0;
  int64_t max_regions_per_owner = 0;
  int64_t max_region_bytes = 0;  // of all owners together
  int64_t max_region_bytes_per_owner = 0;
  int64_t region_idle_seconds = 0;

  int64_t max_chunk_bytes = kMaxChunkBytes;  // fixed, as the next two
  int64_t max_streams = kMaxStreams;
  int64_t stream_memory_bytes = kStreamBufferBytes;  // and a window
};

}  // namespace attendant::server
