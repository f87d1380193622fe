#include "server/tracing/traceparent.h"

#include <cstdint>
#include <random>

namespace attendant::server {
namespace {

constexpr size_t kLength = 55;

bool IsLowerHex(std::string_view text) {
  return text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

bool IsZero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

std::string RandomHex(int digits) {
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::string text;
  while (static_cast<int>(text.size()) < digits) {
    for (uint64_t bits = random(); bits != 0; bits >>= 4) {
      text += "0123456789abcdef"[bits & 15];
    }
  }
  text.resize(static_cast<size_t>(digits));
  if (IsZero(text)) text.back() = '1';
  return text;
}

}  // namespace

std::optional<TraceParent> ParseTraceParent(std::string_view text) {
  if (text.size() < kLength) return std::nullopt;
  const std::string_view version = text.substr(0, 2);
  const std::string_view trace_id = text.substr(3, 32);
  const std::string_view parent_id = text.substr(36, 16);
  const std::string_view flags = text.substr(53, 2);
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  if (version == "00" ? text.size() != kLength
                      : text.size() > kLength && text[kLength] != '-') {
    return std::nullopt;
  }
  if (!IsLowerHex(version) || version == "ff" || !IsLowerHex(trace_id) ||
      !IsLowerHex(parent_id) || !IsLowerHex(flags) || IsZero(trace_id) ||
      IsZero(parent_id)) {
    return std::nullopt;
  }
  const char last = flags[1];
  const int low = last <= '9' ? last - '0' : last - 'a' + 10;
  return TraceParent{std::string(trace_id), std::string(parent_id),
                     (low & 1) != 0};
}

std::string FormatTraceParent(const TraceParent& parent) {
  return "00-" + parent.trace_id + "-" + parent.parent_id +
         (parent.sampled ? "-01" : "-00");
}

std::string NewTraceId() { return RandomHex(32); }
std::string NewSpanId() { return RandomHex(16); }

}  // namespace attendant::server
