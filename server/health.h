// Live and ready, for gRPC health (Check and Watch) and the HTTP port alike.
#pragma once

#include <mutex>
#include <string>

namespace grpc {
class HealthCheckServiceInterface;
}  // namespace grpc

namespace attendant::server {

// Names served by grpc.health.v1: "live" (restart me if not), and "", "ready"
// and "attendant.v1.AttentionService" (send me requests). Thread-safe.
class Health {
 public:
  // `service` outlives this object or is detached by Attach(nullptr).
  void Attach(grpc::HealthCheckServiceInterface* service);

  // Empty = ready (live); else why not.
  void SetReady(const std::string& why_not);
  void SetLive(const std::string& why_not);

  std::string why_not_ready() const;
  std::string why_not_live() const;

 private:
  void PublishLocked();

  mutable std::mutex mu_;
  grpc::HealthCheckServiceInterface* service_ = nullptr;
  std::string why_not_ready_ = "starting";
  std::string why_not_live_;
};

}  // namespace attendant::server
