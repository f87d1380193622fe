// What a ModelInferRequest asks for, as an AttendRequest.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"
#include "server/request/infer_codec.h"
#include "server/request/wire_codec.h"

namespace attendant::server {

struct TranslatedInfer {
  ParsedRequest request;  // extents are those of the raw contents
  InferReplyPlan reply;
  // From the parameter `timeout`; the call ends so long after its start.
  std::optional<std::chrono::microseconds> timeout;
};

// `message` is what `infer` was parsed from: lists (cu_seqlens, ...) are read
// from it. Errors name the input or parameter, with an ErrorDetail:
// INVALID_ARGUMENT (twice, missing, of the wrong type or size), UNIMPLEMENTED
// (an input, output, parameter or datatype this model does not have; typed
// contents; shared memory by name), NOT_FOUND (another model or version).
absl::StatusOr<TranslatedInfer> TranslateInfer(const ParsedInfer& infer,
                                               const grpc::ByteBuffer& message);

}  // namespace attendant::server
