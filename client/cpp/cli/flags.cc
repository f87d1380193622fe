#include "client/cpp/cli/flags.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

absl::Status NotA(const std::string& name, const std::string& value,
                  const std::string& bound) {
  return InvalidField("--" + name, value, bound);
}

absl::StatusOr<int64_t> ParseInt(const std::string& name,
                                 const std::string& text) {
  int64_t value;
  if (!absl::SimpleAtoi(text, &value)) return NotA(name, text, "an integer");
  return value;
}

absl::StatusOr<float> ParseFloat(const std::string& name,
                                 const std::string& text) {
  float value;
  if (!absl::SimpleAtof(text, &value)) return NotA(name, text, "a number");
  return value;
}

template <typename T, typename ParseOne>
absl::StatusOr<std::vector<T>> ParseList(const std::string& name,
                                         const std::string& text,
                                         const ParseOne& parse) {
  std::vector<T> values;
  if (text.empty()) return values;
  for (const auto& part : absl::StrSplit(text, ',')) {
    absl::StatusOr<T> value = parse(name, std::string(part));
    if (!value.ok()) return value.status();
    values.push_back(*value);
  }
  return values;
}

}  // namespace

absl::StatusOr<Flags> Flags::Parse(const std::vector<std::string>& arguments,
                                   std::span<const FlagSpec> specs) {
  Flags flags;
  for (size_t a = 0; a < arguments.size(); ++a) {
    const std::string& argument = arguments[a];
    if (argument.rfind("--", 0) != 0) {
      flags.positional_.push_back(argument);
      continue;
    }
    const size_t equals = argument.find('=');
    const std::string name = argument.substr(
        2, equals == std::string::npos ? std::string::npos : equals - 2);
    const auto spec =
        std::find_if(specs.begin(), specs.end(),
                     [&](const FlagSpec& row) { return name == row.name; });
    if (spec == specs.end()) {
      return NotA(name, "no flag of this command",
                  "one of those that --help shows");
    }
    std::string value = "true";
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
    } else if (std::strlen(spec->value) > 0) {
      if (a + 1 == arguments.size()) {
        return NotA(name, "without a value", spec->value);
      }
      value = arguments[++a];
    }
    const bool is_switch = std::strlen(spec->value) == 0;
    if (is_switch && value != "true" && value != "false") {
      return NotA(name, value, "true or false");
    }
    if (!flags.values_.emplace(name, value).second) {
      return NotA(name, "given twice", "given once");
    }
  }
  return flags;
}

bool Flags::Switch(const std::string& name) const {
  return String(name) == "true";
}

std::string Flags::String(const std::string& name,
                          const std::string& otherwise) const {
  const auto found = values_.find(name);
  return found == values_.end() ? otherwise : found->second;
}

absl::StatusOr<std::optional<int64_t>> Flags::Int(
    const std::string& name) const {
  if (!Has(name)) return std::nullopt;
  const absl::StatusOr<int64_t> value = ParseInt(name, String(name));
  if (!value.ok()) return value.status();
  return *value;
}

absl::StatusOr<std::optional<float>> Flags::Float(
    const std::string& name) const {
  if (!Has(name)) return std::nullopt;
  const absl::StatusOr<float> value = ParseFloat(name, String(name));
  if (!value.ok()) return value.status();
  return *value;
}

absl::StatusOr<std::vector<int64_t>> Flags::Ints(
    const std::string& name) const {
  return ParseList<int64_t>(name, String(name), ParseInt);
}

absl::StatusOr<std::vector<float>> Flags::Floats(
    const std::string& name) const {
  return ParseList<float>(name, String(name), ParseFloat);
}

std::string HelpLines(std::span<const FlagSpec> specs) {
  std::string text;
  for (const FlagSpec& spec : specs) {
    std::string flag = absl::StrCat("--", spec.name);
    if (std::strlen(spec.value) > 0) absl::StrAppend(&flag, "=", spec.value);
    for (const auto& line : absl::StrSplit(spec.help, '\n')) {
      absl::StrAppendFormat(&text, "  %-28s %s\n", flag, line);
      flag.clear();
    }
  }
  return text;
}

}  // namespace attendant::client::cli
