#include "client/cpp/cli/connection_flags.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"server", "HOST:PORT",
     "the server, unix:/path, or several addresses by commas, which take the "
     "calls in turn [localhost:50051]"},
    {"balance", "", "all servers behind --server's name take calls in turn"},
    {"timeout", "SECONDS", "for the whole call, retries included [60]"},
    {"max-attempts", "N", "calls made at most while it may help [5]"},
    {"tls", "", "encrypt, and check the server's certificate"},
    {"ca", "FILE", "root certificates (PEM) [the system's]"},
    {"cert", "FILE", "client certificate (PEM), with --key"},
    {"key", "FILE", "its private key (PEM)"},
    {"server-name", "NAME", "name expected in the server's certificate"},
    {"token-file", "FILE", "bearer token [environment: ATTENDANT_TOKEN]"},
    {"allow-token-without-tls", "", "send the token in the clear"},
};

constexpr FlagSpec kOutputFlags[] = {
    {"json", "", "print one JSON object"},
    {"help", "", "show this"},
};

absl::Status ReadFlagFile(const Flags& flags, const std::string& name,
                          std::string* text) {
  if (!flags.Has(name)) return absl::OkStatus();
  const std::string path = flags.String(name);
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  if (!file || content.str().empty()) {
    return InvalidField("--" + name, path, "a file that can be read");
  }
  *text = content.str();
  return absl::OkStatus();
}

}  // namespace

std::span<const FlagSpec> ConnectionFlags() { return kFlags; }

std::span<const FlagSpec> OutputFlags() { return kOutputFlags; }

std::string TargetOf(const Flags& flags) {
  return flags.String("server", "localhost:50051");
}

absl::StatusOr<ClientOptions> OptionsOf(const Flags& flags) {
  ClientOptions options;
  options.tls = flags.Switch("tls");
  options.server_name = flags.String("server-name");
  options.balance = flags.Switch("balance");
  options.allow_token_without_tls = flags.Switch("allow-token-without-tls");
  const char* token = std::getenv("ATTENDANT_TOKEN");
  if (token != nullptr) options.token = token;
  absl::Status status = ReadFlagFile(flags, "ca", &options.root_certificates);
  status.Update(ReadFlagFile(flags, "cert", &options.client_certificate));
  status.Update(ReadFlagFile(flags, "key", &options.client_key));
  status.Update(ReadFlagFile(flags, "token-file", &options.token));
  if (!status.ok()) return status;
  absl::StripAsciiWhitespace(&options.token);
  const auto attempts = flags.Int("max-attempts");
  if (!attempts.ok()) return attempts.status();
  if (attempts->has_value()) {
    if (**attempts < 1 || **attempts > 1000) {
      return InvalidField("--max-attempts", absl::StrCat(**attempts),
                          "1..1000");
    }
    options.retry.max_attempts = static_cast<int>(**attempts);
  }
  return options;
}

absl::StatusOr<std::chrono::nanoseconds> TimeoutOf(const Flags& flags) {
  const auto seconds = flags.Float("timeout");
  if (!seconds.ok()) return seconds.status();
  const double timeout = seconds->value_or(60);
  if (!(timeout > 0) || timeout > 86400) {
    return InvalidField("--timeout", flags.String("timeout"), "0..86400 s");
  }
  return std::chrono::nanoseconds(static_cast<int64_t>(timeout * 1e9));
}

absl::StatusOr<Connection> Connect(const Flags& flags) {
  absl::StatusOr<ClientOptions> options = OptionsOf(flags);
  if (!options.ok()) return options.status();
  const absl::StatusOr<std::chrono::nanoseconds> timeout = TimeoutOf(flags);
  if (!timeout.ok()) return timeout.status();
  absl::StatusOr<Client> client =
      Client::Create(TargetOf(flags), *std::move(options));
  if (!client.ok()) return client.status();
  return Connection{*std::move(client), *timeout};
}

}  // namespace attendant::client::cli
