// The W3C trace context of a call: header `traceparent`, version 00.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace attendant::server {

// "00-<trace id>-<parent id>-<flags>": 32, 16 and 2 lower-case hexadecimal
// digits.
struct TraceParent {
  std::string trace_id;   // not all zeros
  std::string parent_id;  // not all zeros
  bool sampled = false;   // the caller records this trace
};

// Nothing if the text is not one. Of later versions what version 00 knows is
// taken.
std::optional<TraceParent> ParseTraceParent(std::string_view text);

std::string FormatTraceParent(const TraceParent& parent);

// Random identifiers, never all zeros.
std::string NewTraceId();
std::string NewSpanId();

}  // namespace attendant::server
