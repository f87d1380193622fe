// One HTTP port: /metrics, /healthz, /readyz and further pages. GET and HEAD
// only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::server {

// Answers requests on threads of its own; the callbacks run on them.
class AdminHttp {
 public:
  struct Page {
    std::string path;  // "/statusz"
    std::string type;  // "text/html; charset=utf-8"
    std::function<std::string()> body;
  };
  struct Callbacks {
    std::function<std::string()> metrics;  // Prometheus text
    // Empty = 200; else 503 with this text.
    std::function<std::string()> why_not_live;
    std::function<std::string()> why_not_ready;
    std::vector<Page> pages;
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
