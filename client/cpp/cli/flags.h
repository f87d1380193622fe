// --name=value flags of the command, checked against a table.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::client::cli {

struct FlagSpec {
  const char* name;   // without the dashes
  const char* value;  // what stands for the value in the help; "" = a switch
  const char* help;   // may have several lines
};

// What was given. Getters return none for a flag that was not; numbers that do
// not parse are INVALID_ARGUMENT with field "--name", value, bound.
class Flags {
 public:
  // Takes --name=value and --name value, switches as --name or
  // --name=true/false. The rest is positional. INVALID_ARGUMENT for an unknown
  // flag, one given twice, one without its value.
  static absl::StatusOr<Flags> Parse(const std::vector<std::string>& arguments,
                                     std::span<const FlagSpec> specs);

  const std::vector<std::string>& positional() const { return positional_; }
  const std::map<std::string, std::string>& values() const { return values_; }
  bool Has(const std::string& name) const { return values_.contains(name); }
  bool Switch(const std::string& name) const;
  std::string String(const std::string& name,
                     const std::string& otherwise = {}) const;
  absl::StatusOr<std::optional<int64_t>> Int(const std::string& name) const;
  absl::StatusOr<std::optional<float>> Float(const std::string& name) const;
  // Comma-separated; empty if not given.
  absl::StatusOr<std::vector<int64_t>> Ints(const std::string& name) const;
  absl::StatusOr<std::vector<float>> Floats(const std::string& name) const;

 private:
  std::map<std::string, std::string> values_;
  std::vector<std::string> positional_;
};

// "  --name=VALUE   help" lines.
std::string HelpLines(std::span<const FlagSpec> specs);

}  // namespace attendant::client::cli
