// The table of flags: name, help, default and checked setter of each.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/options/server_options.h"

namespace attendant::server {

struct Option {
  std::string name;   // without dashes
  std::string value;  // what stands for the value in --help
  std::string help;
  std::string initial;  // the default, as text
  // INVALID_ARGUMENT "--name is 'text', must be BOUND".
  std::function<absl::Status(const std::string& text)> set;
};

// Every flag but config, help, selftest and version. Setters write into
// `options`, which outlives the table.
std::vector<Option> OptionTable(ServerOptions* options);

}  // namespace attendant::server
