#include "server/options/server_options.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/connections/receive_watch.h"
#include "server/options/option_table.h"
#include "server/tracing/http_post.h"

namespace attendant::server {
namespace {

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

absl::Status SetByName(const std::vector<Option>& table,
                       const std::string& name, const std::string& value) {
  for (const Option& option : table) {
    if (option.name == name) return option.set(value);
  }
  return absl::InvalidArgumentError("--" + name +
                                    " is not a flag; --help lists them all");
}

absl::Status ReadConfigFile(const std::string& path,
                            const std::vector<Option>& table) {
  std::ifstream file(path);
  const absl::Status unreadable = absl::InvalidArgumentError(
      "--config is '" + path + "', must be a readable file");
  if (!file) return unreadable;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    line = Trimmed(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    const std::string place = path + ":" + std::to_string(number) + ": ";
    const size_t equals = line.find('=');
    if (equals == std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, "'", line, "' must be 'name = value'"));
    }
    const absl::Status status =
        SetByName(table, Trimmed(line.substr(0, equals)),
                  Trimmed(line.substr(equals + 1)));
    if (!status.ok()) {
      return absl::InvalidArgumentError(place + std::string(status.message()));
    }
  }
  // A directory opens like a file.
  return file.bad() ? unreadable : absl::OkStatus();
}

using Setting = std::pair<std::string, std::string>;

absl::StatusOr<std::vector<Setting>> SplitArguments(
    const std::vector<std::string>& arguments, CommandLine* line) {
  std::vector<Setting> settings;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--help" || argument == "-h") {
      line->help = true;
    } else if (argument == "--version") {
      line->version = true;
    } else if (argument == "--selftest") {
      line->selftest = true;
    } else if (argument.rfind("--", 0) != 0) {
      return absl::InvalidArgumentError("'" + argument +
                                        "' is not a flag (--name=value)");
    } else if (const size_t equals = argument.find('=');
               equals != std::string::npos) {
      settings.emplace_back(argument.substr(2, equals - 2),
                            argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      settings.emplace_back(argument.substr(2), arguments[++i]);
    } else {
      return absl::InvalidArgumentError(argument + " has no value");
    }
  }
  return settings;
}

// What no single flag can see.
absl::Status CheckTogether(const ServerOptions& options) {
  const int64_t pool = options.engine.host_pool_bytes;
  if (options.bounds.max_queued_bytes > pool) {
    return absl::InvalidArgumentError(
        "--max_queued_bytes is " +
        std::to_string(options.bounds.max_queued_bytes) +
        ", must be at most --host_pool_bytes, " + std::to_string(pool));
  }
  if (options.tls.certificate.empty() != options.tls.key.empty()) {
    return absl::InvalidArgumentError(
        "--tls_cert and --tls_key are one set, one empty, must be set both or "
        "neither");
  }
  if (!options.tls.client_ca.empty() && !options.tls.enabled()) {
    return absl::InvalidArgumentError("--tls_client_ca is '" +
                                      options.tls.client_ca +
                                      "', must be empty without --tls_cert");
  }
  if (!options.otlp_endpoint.empty()) {
    if (absl::Status status = OtlpUrl(options.otlp_endpoint).status();
        !status.ok()) {
      return absl::InvalidArgumentError("--otlp_endpoint is " +
                                        std::string(status.message()));
    }
  }
  if (options.bounds.max_request_bytes > int64_t{INT32_MAX}) {
    return absl::InvalidArgumentError(
        "--max_request_bytes is " +
        std::to_string(options.bounds.max_request_bytes) +
        ", must be at most 2147483647 (one gRPC message)");
  }
  if (options.bounds.max_response_bytes > int64_t{INT32_MAX}) {
    return absl::InvalidArgumentError(
        "--max_response_bytes is " +
        std::to_string(options.bounds.max_response_bytes) +
        ", must be at most 2147483647 (one gRPC message)");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ServerOptions::HostMemoryBound() const {
  return engine.host_pool_bytes + RegionMemoryBound() + MessageMemoryBound();
}

int64_t ServerOptions::MessageMemoryBound() const {
  const int64_t window =
      http2_window_bytes > 0 ? http2_window_bytes : int64_t{8} << 20;
  // A message of either door, or those of a stream that are being copied.
  const int64_t messages =
      std::max({bounds.max_request_bytes, kMaxHeaderBytes + kMaxChunkOverhead,
                kStreamBufferBytes});
  return max_uploads * (messages + window + ReceiveWatch::kSlackBytes);
}

int64_t ServerOptions::RegionMemoryBound() const {
  return regions.buffers ? regions.max_bytes : 0;
}

std::vector<std::string> ServerOptions::ListenAddresses() const {
  std::vector<std::string> addresses;
  for (size_t begin = 0; begin <= listen.size();) {
    const size_t comma = std::min(listen.find(',', begin), listen.size());
    const std::string address = Trimmed(listen.substr(begin, comma - begin));
    if (!address.empty()) addresses.push_back(address);
    begin = comma + 1;
  }
  return addresses;
}

absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments) {
  CommandLine line;
  const std::vector<Option> table = OptionTable(&line.options);
  ASSIGN_OR_RETURN(const std::vector<Setting> settings,
                   SplitArguments(arguments, &line));
  for (const auto& [name, value] : settings) {
    if (name == "config") RETURN_IF_ERROR(ReadConfigFile(value, table));
  }
  for (const auto& [name, value] : settings) {
    if (name != "config") RETURN_IF_ERROR(SetByName(table, name, value));
  }
  EngineOptions& engine = line.options.engine;
  Bounds& bounds = line.options.bounds;
  if (bounds.max_queued_bytes == 0) {
    bounds.max_queued_bytes = engine.host_pool_bytes;
  }
  engine.max_queued_requests = bounds.max_queued_requests;
  engine.max_queued_bytes = bounds.max_queued_bytes;
  engine.max_queued_flops = bounds.max_queued_flops;
  RETURN_IF_ERROR(CheckTogether(line.options));
  return line;
}

std::string HelpText() {
  ServerOptions defaults;
  std::string text =
      "attendant-server: exact attention as a gRPC service\n\n"
      "  --config FILE\n"
      "      read `name = value` lines (# starts a comment) with the names\n"
      "      below; flags win over the file\n"
      "  --version\n"
      "      print the version and exit\n"
      "  --selftest\n"
      "      check that this node can serve what the other flags say "
      "(kernels,\n"
      "      memory, doors), print a table and exit: 0, or 5 if a check "
      "failed\n";
  for (const Option& option : OptionTable(&defaults)) {
    text += "  --" + option.name + " " + option.value + "   (default: " +
            (option.initial.empty() ? "empty" : option.initial) + ")\n      " +
            option.help + "\n";
  }
  return text;
}

bool IsSecretFlag(const std::string& name) {
  const auto ends_with = [&](const std::string& end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  if (ends_with("_file") || ends_with("_path")) return false;
  for (const char* word :
       {"token", "secret", "password", "passphrase", "credential", "_key"}) {
    if (name.find(word) != std::string::npos) return true;
  }
  return false;
}

std::vector<ShownFlag> ShownFlags(const ServerOptions& options) {
  ServerOptions now = options;
  ServerOptions defaults;
  const std::vector<Option> shown = OptionTable(&now);
  const std::vector<Option> initial = OptionTable(&defaults);
  std::vector<ShownFlag> flags;
  for (size_t i = 0; i < shown.size(); ++i) {
    const std::string& name = shown[i].name;
    std::string value = shown[i].initial;
    if (IsSecretFlag(name) && !value.empty()) value = "(hidden)";
    flags.push_back({name, std::move(value), initial[i].initial});
  }
  return flags;
}

bool IsLoopback(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return true;
  const std::string host = address.substr(0, address.rfind(':'));
  return host.rfind("127.", 0) == 0 || host == "localhost" || host == "[::1]" ||
         host == "::1";
}

}  // namespace attendant::server
