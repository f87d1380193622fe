// An AttendRequest sent through the stream door by generated code, and its
// answer put together again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"

namespace attendant::testing {

// `request` without its tensors' bytes.
v1::AttendStreamRequest HeaderOf(const v1::AttendRequest& request);
// Its tensors' bytes, in the order of their numbers; chunk_bytes a multiple of
// 8.
std::vector<v1::AttendStreamRequest> ChunksOf(const v1::AttendRequest& request,
                                              int64_t chunk_bytes);

struct StreamOptions {
  int64_t chunk_bytes = 4096;
  // Chunks in an order drawn from `seed`, unless it is 0.
  unsigned seed = 0;
  std::string owner = {};  // of regions that the request names
};

// One call over as many streams as there are stubs (at least one). *reply is
// what Attend would have answered; on an error it is of no use. A chunk that
// breaks the contract gives INTERNAL.
grpc::Status AttendByStreams(
    const std::vector<v1::AttentionService::StubInterface*>& stubs,
    const v1::AttendRequest& request, const StreamOptions& options,
    v1::AttendResponse* reply);

}  // namespace attendant::testing
