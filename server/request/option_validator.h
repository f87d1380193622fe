// Scale, softcap, window, ALiBi, sinks and mask of a request.
#pragma once

#include "absl/status/status.h"
#include "server/request/bounds.h"
#include "server/request/problem_validator.h"
#include "server/request/sequence_layout.h"

namespace attendant::server {

// Both fill `result->problem`, whose batch, heads and head_dim are known.

// `longest`: no sequence has more rows or keys; a window beyond that is cut to
// it, which hides nothing and keeps positions within 32 bits.
absl::Status ApplyOptions(const v1::AttendRequest& request, int64_t longest,
                          ValidatedRequest* result);

// `input` is the dtype of q on the wire. Adds the mask's image.
absl::Status ApplyMask(const ParsedRequest& request, v1::DataType input,
                       const SequenceLayout& layout, const Bounds& bounds,
                       ValidatedRequest* result);

}  // namespace attendant::server
