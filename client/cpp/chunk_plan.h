// In which order the bytes of a request travel through the stream door.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "client/cpp/attend_args.h"
#include "client/cpp/request_encoder.h"

namespace attendant::client {

// Bytes [offset, offset + bytes) of the request's `tensor`-th tensor.
struct PlannedChunk {
  size_t tensor = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Covers every tensor once, in chunks of at most `chunk_bytes` (a multiple of
// 8). The server computes parts as they become complete: so K and V of a batch
// entry (BSHD), a head (BHSD) or a sequence (THD) go before its Q, and entries
// follow each other.
std::vector<PlannedChunk> PlanChunks(const AttendArgs& args,
                                     const std::vector<NamedTensor>& tensors,
                                     int64_t chunk_bytes);

}  // namespace attendant::client
