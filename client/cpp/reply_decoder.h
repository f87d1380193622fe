// AttendResponse and GetServerInfoResponse -> the client's own types.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <string>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/server_info.h"

namespace attendant::client {

// Tensor bytes are copied once, from gRPC's slices into args.out and args.lse
// or into new tensors. Errors: INVALID_ARGUMENT if args.out or args.lse has
// another size than the answer; INTERNAL for a reply that breaks the contract.
absl::StatusOr<AttendResult> DecodeAttendResponse(
    const AttendArgs& args, const grpc::ByteBuffer& message);

// What a reply says beside its tensors.
AttendResult ResultOf(const v1::AttendResponse& response);
// The contiguous tensor that a reply's spec describes, without memory. INTERNAL
// for a spec that breaks the contract.
absl::StatusOr<Tensor> EmptyTensor(const std::string& name,
                                   const v1::TensorSpec& spec);

absl::StatusOr<ServerInfo> DecodeServerInfo(const grpc::ByteBuffer& message);

}  // namespace attendant::client
