// Text of any kind as flags, as a config file and as a policy file: see
// README.md. The first byte chooses.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "server/access/access_policy.h"
#include "server/options/server_options.h"
#include "server/request/errors.h"
#include "tests/fuzz/fuzz_target.h"

namespace attendant::server {
namespace {

using fuzz::Require;

// Every setting as it is shown, given again, is the same setting.
void CheckLine(const absl::StatusOr<CommandLine>& line) {
  if (!line.ok()) {
    Require(absl::IsInvalidArgument(line.status()), "code");
    Require(!line.status().message().empty(), "text");
    return;
  }
  const ServerOptions& options = line->options;
  Require(options.HostMemoryBound() >= options.engine.host_pool_bytes,
          "the bound holds the pool");
  for (const std::string& address : options.ListenAddresses()) {
    IsLoopback(address);
  }
  const std::vector<ShownFlag> shown = ShownFlags(options);
  std::vector<std::string> again;
  for (const ShownFlag& flag : shown) {
    if (flag.value == "(hidden)") return;
    again.push_back("--" + flag.name + "=" + flag.value);
  }
  const auto second = ParseCommandLine(again);
  Require(second.ok(),
          "what is shown can be given: " + second.status().ToString());
  const std::vector<ShownFlag> shown_again = ShownFlags(second->options);
  for (size_t i = 0; i < shown.size(); ++i) {
    Require(shown[i].value == shown_again[i].value, "shown " + shown[i].name);
  }
}

// A line each. A config file of someone else's choice is not read.
void FuzzArguments(const std::string& text) {
  std::vector<std::string> arguments;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    arguments.push_back(text.substr(begin, end - begin));
    if (arguments.back().rfind("--config", 0) == 0) return;
    begin = end + 1;
  }
  CheckLine(ParseCommandLine(arguments));
}

void FuzzConfigFile(const std::string& text) {
  static const int file = memfd_create("config", 0);
  Require(ftruncate(file, 0) == 0, "truncate");
  Require(pwrite(file, text.data(), text.size(), 0) ==
              static_cast<ssize_t>(text.size()),
          "write");
  CheckLine(
      ParseCommandLine({"--config=/proc/self/fd/" + std::to_string(file)}));
}

void FuzzPolicy(const std::string& text) {
  const auto policy = AccessPolicy::Parse(text, "policy");
  if (!policy.ok()) {
    Require(DetailOf(policy.status()).has_value(), "detail");
    return;
  }
  std::set<std::string> names;
  for (const char* token : {"", "secret", "other"}) {
    for (const char* name : {"", "spiffe://x/batch"}) {
      Credentials credentials;
      credentials.token = token;
      if (*name != '\0') credentials.names = {name};
      for (const char* method : {"Attend", "GetServerInfo"}) {
        const auto identity = (*policy)->Decide(credentials, method);
        if (!identity.ok()) continue;
        Require((*identity)->May(method), "may call");
        Require((*identity)->weight > 0 && (*identity)->weight <= 1000 &&
                    (*identity)->queue_share > 0 &&
                    (*identity)->queue_share <= 1 &&
                    (*identity)->max_priority >= -100 &&
                    (*identity)->max_priority <= 100,
                "within bounds");
        Require(!(*identity)->name.empty(), "named");
      }
    }
  }
}

int WriteSeeds(const std::string& folder) {
  ServerOptions defaults;
  std::string flags, lines;
  for (const ShownFlag& flag : ShownFlags(defaults)) {
    flags += "--" + flag.name + "=" + flag.initial + "\n";
    lines += flag.name + " = " + flag.initial + "  # as it is\n";
  }
  const std::string policy = R"({"anonymous": {"methods": ["GetServerInfo"]},
 "identities": [{"name": "search", "token_sha256":
 "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
 "methods": ["*"], "max_priority": 10, "weight": 2, "queue_share": 0.5},
 {"name": "batch", "certificate_name": "spiffe://x/batch",
 "methods": ["Attend"]}]})";
  std::ofstream(folder + "/flags") << '\0' << flags;
  std::ofstream(folder + "/file") << '\1' << lines;
  std::ofstream(folder + "/policy") << '\2' << policy;
  return 0;
}

}  // namespace
}  // namespace attendant::server

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return attendant::fuzz::Start(*argc, *argv, attendant::server::WriteSeeds);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      attendant::server::FuzzArguments(text);
      break;
    case 1:
      attendant::server::FuzzConfigFile(text);
      break;
    default:
      attendant::server::FuzzPolicy(text);
  }
  return 0;
}
