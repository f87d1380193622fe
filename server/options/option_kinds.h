// The kinds of flags there are, each with the check of its values. Setters
// write to their target, which outlives the option.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "server/options/option_table.h"

namespace attendant::server {

inline constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

// INVALID_ARGUMENT "--name is 'text', must be BOUND".
absl::Status BadValue(const std::string& name, const std::string& text,
                      const std::string& bound);
// With `bytes`, "64M" -> 64 << 20; false if not a number or out of int64.
bool ParseInteger(const std::string& text, bool bytes, int64_t* value);
// 64 << 20 -> "64M".
std::string ShowBytes(int64_t bytes);

struct Range {
  int64_t low;
  int64_t high;
};

template <typename Integer>
Option IntegerOption(const std::string& name, Integer* target, Range range,
                     const std::string& help, bool bytes = false) {
  const std::string bound =
      (bytes ? "bytes (K, M, G, T allowed), " : "an integer, ") +
      (range.high == kMaxInt
           ? "at least " + std::to_string(range.low)
           : std::to_string(range.low) + ".." + std::to_string(range.high));
  auto set = [=](const std::string& text) {
    int64_t value = 0;
    if (!ParseInteger(text, bytes, &value) || value < range.low ||
        value > range.high) {
      return BadValue(name, text, bound);
    }
    *target = static_cast<Integer>(value);
    return absl::OkStatus();
  };
  return {name, bytes ? "BYTES" : "N", help,
          bytes ? ShowBytes(*target) : std::to_string(*target), set};
}

template <typename Value>
Option ChoiceOption(const std::string& name, Value* target,
                    std::vector<std::pair<std::string, Value>> choices,
                    const std::string& help) {
  std::string all;
  std::string initial;
  for (const auto& [word, value] : choices) {
    all += (all.empty() ? "" : "|") + word;
    if (value == *target) initial = word;
  }
  auto set = [=](const std::string& text) {
    for (const auto& [word, value] : choices) {
      if (word != text) continue;
      *target = value;
      return absl::OkStatus();
    }
    return BadValue(name, text, "one of " + all);
  };
  return {name, all, help, initial, set};
}

Option SecondsOption(const std::string& name, std::chrono::seconds* target,
                     const std::string& help);
Option BytesOption(const std::string& name, int64_t* target, int64_t low,
                   const std::string& help);
Option FlopsOption(const std::string& name, double* target,
                   const std::string& help, bool may_be_zero = false);
// 0..1.
Option ShareOption(const std::string& name, double* target,
                   const std::string& help);
// `value` stands for it in --help.
Option TextOption(const std::string& name, const std::string& value,
                  std::string* target, const std::string& help);
Option AddressOption(const std::string& name, std::string* target,
                     bool may_be_empty, const std::string& help);
// An octal file mode.
Option ModeOption(const std::string& name, int64_t* target,
                  const std::string& help);
// "buffers,posix": one flag of RegionOptions for each word.
Option RegionKindsOption(RegionOptions* regions);
// User numbers by commas.
Option UsersOption(const std::string& name, std::vector<uid_t>* users,
                   const std::string& help);

}  // namespace attendant::server
