// One interval of one call, as tracing systems know it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace attendant::server {

struct Span {
  std::string trace_id;   // 32 hexadecimal digits
  std::string span_id;    // 16
  std::string parent_id;  // 16, or empty for the first of a trace
  std::string name;
  bool is_call = false;  // the whole call, else a stage of it
  int64_t begin_unix_ns = 0, end_unix_ns = 0;
  std::vector<std::pair<std::string, std::variant<std::string, int64_t>>>
      attributes;
  std::string error;  // empty = it went well
};

}  // namespace attendant::server
