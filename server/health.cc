#include "server/health.h"

#include <grpcpp/health_check_service_interface.h>

namespace attendant::server {

void Health::Attach(grpc::HealthCheckServiceInterface* service) {
  std::lock_guard lock(mu_);
  service_ = service;
  PublishLocked();
}

void Health::SetReady(const std::string& why_not) {
  std::lock_guard lock(mu_);
  why_not_ready_ = why_not;
  PublishLocked();
}

void Health::SetLive(const std::string& why_not) {
  std::lock_guard lock(mu_);
  why_not_live_ = why_not;
  PublishLocked();
}

std::string Health::why_not_ready() const {
  std::lock_guard lock(mu_);
  return why_not_live_.empty() ? why_not_ready_ : why_not_live_;
}

std::string Health::why_not_live() const {
  std::lock_guard lock(mu_);
  return why_not_live_;
}

void Health::PublishLocked() {
  if (service_ == nullptr) return;
  const bool live = why_not_live_.empty();
  const bool ready = live && why_not_ready_.empty();
  service_->SetServingStatus("live", live);
  for (const char* name : {"", "ready", "attendant.v1.AttentionService"}) {
    service_->SetServingStatus(name, ready);
  }
}

}  // namespace attendant::server
