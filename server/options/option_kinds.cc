#include "server/options/option_kinds.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace attendant::server {

absl::Status BadValue(const std::string& name, const std::string& text,
                      const std::string& bound) {
  return absl::InvalidArgumentError("--" + name + " is '" + text +
                                    "', must be " + bound);
}

bool ParseInteger(const std::string& text, bool bytes, int64_t* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  if (error != std::errc() || text.empty()) return false;
  if (stop == end) return true;
  if (!bytes || stop + 1 != end) return false;
  const size_t power = std::string("KMGT").find(*stop);
  if (power == std::string::npos) return false;
  return !__builtin_mul_overflow(*value, int64_t{1} << (10 * (power + 1)),
                                 value);
}

std::string ShowBytes(int64_t bytes) {
  int power = 0;
  while (power < 4 && bytes != 0 && bytes % 1024 == 0) bytes /= 1024, ++power;
  return std::to_string(bytes) + (power ? std::string(1, " KMGT"[power]) : "");
}

Option SecondsOption(const std::string& name, std::chrono::seconds* target,
                     const std::string& help) {
  auto set = [=](const std::string& text) {
    int64_t seconds = 0;
    if (!ParseInteger(text, false, &seconds) || seconds < 0 ||
        seconds > 86'400) {
      return BadValue(name, text, "an integer, 0..86400");
    }
    *target = std::chrono::seconds(seconds);
    return absl::OkStatus();
  };
  return {name, "N", help, std::to_string(target->count()), set};
}

Option BytesOption(const std::string& name, int64_t* target, int64_t low,
                   const std::string& help) {
  return IntegerOption(name, target, {low, kMaxInt}, help, true);
}

Option FlopsOption(const std::string& name, double* target,
                   const std::string& help, bool may_be_zero) {
  auto set = [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !std::isfinite(value) || value < 0 ||
        (value == 0 && !may_be_zero)) {
      return BadValue(name, text,
                      may_be_zero ? "a finite number >= 0, such as 1e12"
                                  : "a finite number > 0, such as 1e16");
    }
    *target = value;
    return absl::OkStatus();
  };
  char initial[32];
  std::snprintf(initial, sizeof(initial), "%g", *target);
  return {name, "FLOPS", help, initial, set};
}

Option ShareOption(const std::string& name, double* target,
                   const std::string& help) {
  auto set = [=](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (text.empty() || *end != 0 || !(value >= 0 && value <= 1)) {
      return BadValue(name, text, "a number, 0..1");
    }
    *target = value;
    return absl::OkStatus();
  };
  char initial[32];
  std::snprintf(initial, sizeof(initial), "%g", *target);
  return {name, "SHARE", help, initial, set};
}

Option TextOption(const std::string& name, const std::string& value,
                  std::string* target, const std::string& help) {
  auto set = [=](const std::string& text) {
    *target = text;
    return absl::OkStatus();
  };
  return {name, value, help, *target, set};
}

Option AddressOption(const std::string& name, std::string* target,
                     bool may_be_empty, const std::string& help) {
  auto set = [=](const std::string& text) {
    const size_t colon = text.rfind(':');
    if (!(text.empty() && may_be_empty) &&
        (colon == std::string::npos || colon == 0 ||
         colon + 1 == text.size())) {
      return BadValue(name, text, "HOST:PORT");
    }
    *target = text;
    return absl::OkStatus();
  };
  return {name, "ADDRESS", help, *target, set};
}

Option ModeOption(const std::string& name, int64_t* target,
                  const std::string& help) {
  auto set = [=](const std::string& text) {
    int64_t mode = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, mode, 8);
    if (error != std::errc() || stop != end || mode < 0 || mode > 0777) {
      return BadValue(name, text, "an octal file mode, 0..777");
    }
    *target = mode;
    return absl::OkStatus();
  };
  char initial[8];
  std::snprintf(initial, sizeof(initial), "%04o",
                static_cast<unsigned>(*target));
  return {name, "MODE", help, initial, set};
}

Option RegionKindsOption(RegionOptions* regions) {
  const std::string name = "regions";
  auto set = [regions, name](const std::string& text) {
    RegionOptions kinds = *regions;
    kinds.buffers = kinds.posix = kinds.cuda_ipc = false;
    for (size_t begin = 0; begin < text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      const std::string word = text.substr(begin, comma - begin);
      bool* kind = word == "buffers"    ? &kinds.buffers
                   : word == "posix"    ? &kinds.posix
                   : word == "cuda_ipc" ? &kinds.cuda_ipc
                                        : nullptr;
      if (kind == nullptr) {
        return BadValue(name, text, "some of buffers,posix,cuda_ipc");
      }
      *kind = true;
      begin = comma + 1;
    }
    *regions = kinds;
    return absl::OkStatus();
  };
  return {name, "KINDS",
          "memory that callers may share by RPC, of buffers,posix,cuda_ipc; "
          "for callers you trust",
          "", set};
}

Option UsersOption(const std::string& name, std::vector<uid_t>* users,
                   const std::string& help) {
  auto set = [=](const std::string& text) {
    std::vector<uid_t> parsed;
    for (size_t begin = 0; begin < text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      int64_t user = 0;
      if (!ParseInteger(text.substr(begin, comma - begin), false, &user) ||
          user < 0 || user > std::numeric_limits<int32_t>::max()) {
        return BadValue(name, text, "user numbers by commas");
      }
      parsed.push_back(static_cast<uid_t>(user));
      begin = comma + 1;
    }
    *users = parsed;
    return absl::OkStatus();
  };
  return {name, "UIDS", help, "", set};
}

}  // namespace attendant::server
