// One HTTP port: /metrics, /healthz, /readyz. Plain text, GET and HEAD only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::server {

// Answers requests on threads of its own; the callbacks run on them.
class AdminHttp {
 public:
  struct Callbacks {
    std::function<std::string()> metrics;  // Prometheus text
    // Empty = 200; else 503 with this text.
    std::function<std::string()> why_not_live;
    std::function<std::string()> why_not_ready;
  };

  // `address` is HOST:PORT, port 0 = any. UNAVAILABLE if it cannot be bound.
  static absl::StatusOr<std::unique_ptr<AdminHttp>> Start(
      const std::string& address, Callbacks callbacks);
  ~AdminHttp();

  int port() const { return port_; }

 private:
  class Impl;
  explicit AdminHttp(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
  int port_ = 0;
};

}  // namespace attendant::server
