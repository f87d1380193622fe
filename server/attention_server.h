// A running server: engine, gRPC, health, metrics and HTTP, wired together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/engine/attention_engine.h"
#include "server/options/server_options.h"

namespace attendant::server {

class Health;
class Metrics;

class AttentionServer {
 public:
  // Serves when it returns. UNAVAILABLE if an address cannot be bound.
  static absl::StatusOr<std::unique_ptr<AttentionServer>> Start(
      const ServerOptions& options, std::unique_ptr<AttentionEngine> engine);
  // Ends what still runs; Drain first to lose nothing. gRPC answers calls that
  // arrive while it shuts down with CANCELLED.
  ~AttentionServer();

  // As bound: the port is never 0.
  const std::vector<std::string>& grpc_addresses() const;
  const std::string& http_address() const;  // empty = none

  AttentionEngine& engine();
  Health& health();
  // The text of /metrics.
  std::string MetricsText() const;

  // Reads --policy again; an error changes nothing.
  absl::Status ReloadPolicy();

  // False once the engine is unhealthy: then every health name says so and new
  // calls are refused. Call it a few times a second.
  bool CheckHealth();

  // Not ready from now on, but still serving: the lame duck.
  void StopBeingReady();
  // Refuses new calls (UNAVAILABLE), finishes the others and waits until their
  // replies have reached the callers' machines. False if calls were left at
  // `deadline`. New calls are refused until this object goes.
  bool Drain(Clock::time_point deadline);

  // Attend and AttendStream calls since the start: begun, and ended with OK.
  int64_t Begun() const;
  int64_t Answered() const;
  // Let in and not yet answered to the last byte.
  int64_t Open() const;
  // Whose messages may be on their way.
  int64_t Uploads() const;

 private:
  class Impl;
  explicit AttentionServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attendant::server
