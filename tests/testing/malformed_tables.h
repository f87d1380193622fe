// The parts of MalformedRequests(), by what is wrong. For its files only.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "tests/testing/malformed_requests.h"

namespace attendant::testing {

using Request = v1::AttendRequest;
using MalformedTable = std::vector<MalformedRequest>;

inline constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
inline constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

// A mask of zeros.
void SetMask(Request& r, v1::DataType dtype, const std::vector<int64_t>& shape);
void AddStrides(v1::TensorSpec* spec, const std::vector<int64_t>& strides);

// Framing, unknown fields, wire types.
MalformedTable WireCases();
// Ids, priority, dropout, regions.
MalformedTable EnvelopeCases();
// dtypes, layouts, enum values.
MalformedTable TypeCases();
MalformedTable ShapeCases();
// Strides, bytes sent, sizes of reply and work.
MalformedTable StrideAndByteCases();
MalformedTable QkvCases();
// cu_seqlens, lengths, starts, alignment.
MalformedTable LengthCases();
MalformedTable OptionCases();
MalformedTable MaskCases();

}  // namespace attendant::testing
