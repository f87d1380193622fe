// attendant.v1.AttentionService: by method name to its reactor. Decides
// nothing.
#pragma once

#include <grpcpp/generic/async_generic_service.h>

#include <memory>

#include "server/calls/attend_call.h"

namespace grpc {
class Service;
}  // namespace grpc

namespace attendant::server {

// Attend and AttendStream. A generic service: it sees method and metadata
// before any byte of a body, and bodies as raw bytes.
class AttentionService final : public grpc::CallbackGenericService {
 public:
  explicit AttentionService(CallEnvironment* environment);

  // Calls of other names end with UNIMPLEMENTED.
  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  CallEnvironment* const env_;
};

// GetServerInfo, and the service's name for reflection. Register it beside the
// generic service.
std::unique_ptr<grpc::Service> MakeNamedService(CallEnvironment* environment);

}  // namespace attendant::server
