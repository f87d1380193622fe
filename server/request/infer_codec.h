// ModelInferRequest / ModelInferResponse of the Open Inference Protocol as an
// AttendRequest / AttendResponse: the tensors stay where they are in the
// message, and what is read from it goes the way of every other request.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "inference/open_inference.pb.h"
#include "server/request/host_memory.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

inline constexpr char kModelName[] = "attention";
inline constexpr char kModelVersion[] = "1";

// A ModelInferRequest whose raw contents are still in gRPC's slices.
struct ParsedInfer {
  inference::ModelInferRequest header;  // raw_input_contents is empty
  std::vector<ParsedRequest::Extent> raw;
};

// Any field order parses. Errors carry an ErrorDetail: INVALID_ARGUMENT (not
// this message, more than kMaxHeaderBytes beside the raw contents),
// UNIMPLEMENTED (an unknown field, with its number).
absl::StatusOr<ParsedInfer> ParseModelInfer(const grpc::ByteBuffer& message);

// A model's tensors in the order of the reply.
struct InferReplyPlan {
  std::string id;
  std::vector<std::string> outputs;  // "output", "lse"
};

// OK, or NOT_FOUND: the server has one model of one version.
absl::Status CheckModel(const std::string& name, const std::string& version);

// header: what the caller asked; raw: bytes of O at 0 and of LSE at lse_offset
// of `block`, which the message owns from here on (see EncodeAttendResponse).
grpc::ByteBuffer EncodeModelInfer(const InferReplyPlan& plan,
                                  const v1::AttendResponse& header,
                                  std::shared_ptr<HostBlock> block,
                                  int64_t output_bytes, int64_t lse_offset,
                                  int64_t lse_bytes);

}  // namespace attendant::server
