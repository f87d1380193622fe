// The Open Inference door: GRPCInferenceService for one model, "attention".
#pragma once

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "server/calls/attend_call.h"
#include "server/health.h"

namespace attendant::server {

inline constexpr char kModelInferMethod[] =
    "/inference.GRPCInferenceService/ModelInfer";

// Its methods but ModelInfer, which AttentionService serves by kInferDoor. Both
// arguments outlive it.
std::unique_ptr<grpc::Service> MakeInferenceService(
    CallEnvironment* environment, const Health* health);

}  // namespace attendant::server
