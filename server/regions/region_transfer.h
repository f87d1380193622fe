// The two streams of RegionService: bytes into a region and out of it.
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <string>

#include "attendant/v1/region.pb.h"
#include "server/calls/attend_call.h"

namespace attendant::server {

// Reactors that delete themselves. A chunk is copied once, from gRPC's slices
// to where the region lies (into memory that is not mapped: twice). `access` is
// what was said to the caller's right to call.
grpc::ServerReadReactor<grpc::ByteBuffer>* StartRegionWrite(
    CallEnvironment* environment, grpc::CallbackServerContext* context,
    const absl::Status& access, const std::string& owner,
    grpc::ByteBuffer* reply);
grpc::ServerWriteReactor<v1::ReadResponse>* StartRegionRead(
    CallEnvironment* environment, const absl::Status& access,
    const std::string& owner, const v1::ReadRequest& request);

// A WriteRequest whose data is still in gRPC's slices.
struct WriteChunk {
  std::string name;
  int64_t byte_offset = 0;
  int64_t data_offset = 0;  // in the message
  int64_t data_bytes = 0;
};
// INVALID_ARGUMENT, or UNIMPLEMENTED for a field that is not known.
absl::StatusOr<WriteChunk> ParseWriteChunk(const grpc::ByteBuffer& message);

}  // namespace attendant::server
