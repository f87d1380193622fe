// Every setting of the server: flags and config file -> one validated struct.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/transport_security.h"
#include "server/connections/connection_gate.h"
#include "server/engine/attention_engine.h"
#include "server/log/log.h"
#include "server/regions/region_options.h"
#include "server/request/bounds.h"

namespace attendant::server {

struct ServerOptions {
  // gRPC: host:port (port 0 = any) or unix:/path; several by commas.
  std::string listen = "127.0.0.1:50051";
  // /metrics, /healthz, /readyz, /statusz; empty = none. Port 0 = any.
  std::string http = "127.0.0.1:9090";
  LogLevel log_level = LogLevel::kInfo;
  int64_t log_buffer_bytes = int64_t{1} << 20;
  int64_t slow_request_ms = 1'000;  // 0 = none is slow

  TlsOptions tls;      // of host:port addresses; unix sockets are plain
  std::string policy;  // file; empty = everybody may call everything
  int64_t unix_socket_mode = 0600;

  EngineOptions engine;
  // max_queued_bytes 0 = host_pool_bytes; ParseCommandLine puts that in.
  Bounds bounds{.max_queued_bytes = 0};
  RegionOptions regions;  // sets the region bounds

  // Collector of spans, http://HOST[:PORT][/PATH]; empty = none.
  std::string otlp_endpoint;
  double trace_share = 0;  // of calls that bring no traceparent

  int64_t drain_seconds = 30;
  int64_t lame_duck_seconds = 2;
  bool reflection = true;

  // Calls whose body may be on its way at once. gRPC buffers a message whole
  // before anyone sees its size, so this times the largest message bounds what
  // it can hold; one more call is refused before its body is read.
  int64_t max_uploads = 128;
  int64_t http2_window_bytes = int64_t{2} << 20;  // 0 = gRPC tunes it
  int64_t busy_poll_us = 500;
  int64_t max_streams_per_connection = 0;
  ConnectionLimits connections;
  int64_t handshake_seconds = 20;
  int64_t max_connection_idle_seconds = 0;  // 0 = for ever
  int64_t max_connection_age_seconds = 0;
  int64_t max_connection_age_grace_seconds = 300;
  int64_t keepalive_seconds = 7200;
  int64_t keepalive_timeout_seconds = 20;
  int64_t min_ping_interval_seconds = 10;
  int64_t max_metadata_bytes = 8192;

  // Host memory the server can hold: pools, and uploads times (largest message,
  // window, and what the watch over them lets pass).
  int64_t HostMemoryBound() const;
  int64_t RegionMemoryBound() const;   // of it, server's own buffers
  int64_t MessageMemoryBound() const;  // of it, what is on its way
  std::vector<std::string> ListenAddresses() const;
};

struct CommandLine {
  ServerOptions options;
  bool help = false;
  bool version = false;
  bool selftest = false;
};

// `arguments` without the program's name: --name=value or --name value. A file
// named by --config holds `name = value` lines (# starts a comment) with the
// same names; flags win over the file. Errors: INVALID_ARGUMENT naming flag
// (and line), value and bound.
absl::StatusOr<CommandLine> ParseCommandLine(
    const std::vector<std::string>& arguments);

// The text of --help: every flag, its default and its meaning.
std::string HelpText();

struct ShownFlag {
  std::string name;     // without dashes
  std::string value;    // now; what may be a secret is "(hidden)"
  std::string initial;  // the default
};
// Every flag, in --help's order.
std::vector<ShownFlag> ShownFlags(const ServerOptions& options);
// Whether a flag's value must not be shown: by its name, which tells of a
// token, key, password or secret, but not of a file that holds one.
bool IsSecretFlag(const std::string& name);

// False if `address` can be reached from other machines. Unix sockets and
// 127.0.0.0/8, ::1 and localhost cannot.
bool IsLoopback(const std::string& address);

}  // namespace attendant::server
