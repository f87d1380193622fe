#include "server/calls/inference_service.h"

#include <string>
#include <utility>
#include <vector>

#include "inference/open_inference.grpc.pb.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/infer_codec.h"
#include "server/request/infer_translation.h"
#include "server/server_info.h"

namespace attendant::server {
namespace {

absl::StatusOr<DecodedCall> DecodeInfer(const grpc::ByteBuffer& message) {
  ASSIGN_OR_RETURN(const ParsedInfer infer, ParseModelInfer(message));
  ASSIGN_OR_RETURN(TranslatedInfer translated, TranslateInfer(infer, message));
  DecodedCall call;
  call.request = std::move(translated.request);
  call.timeout = translated.timeout;
  call.encode = [plan = std::move(translated.reply)](auto&&... parts) {
    return EncodeModelInfer(plan, std::forward<decltype(parts)>(parts)...);
  };
  return call;
}

using inference::ModelMetadataResponse;
using Tensors =
    google::protobuf::RepeatedPtrField<ModelMetadataResponse::TensorMetadata>;

void AddTensor(const char* name, const char* datatype,
               const std::vector<int64_t>& shape, Tensors* tensors) {
  auto* tensor = tensors->Add();
  tensor->set_name(name);
  tensor->set_datatype(datatype);
  for (const int64_t size : shape) tensor->add_shape(size);
}

// The protocol has one datatype per tensor; that of q, k, v is the request's to
// choose, and FP16 is named for them all. Optional inputs are listed too.
void DescribeModel(ModelMetadataResponse* model) {
  model->set_name(kModelName);
  model->add_versions(std::string(kModelVersion));
  model->set_platform("attendant");
  for (const char* name : {"q", "k", "v"}) {
    AddTensor(name, "FP16", {-1, -1, -1, -1}, model->mutable_inputs());
  }
  AddTensor("mask", "BOOL", {-1, -1, -1, -1}, model->mutable_inputs());
  for (const char* name : {"cu_seqlens_q", "cu_seqlens_k"}) {
    AddTensor(name, "INT32", {-1}, model->mutable_inputs());
  }
  for (const char* name : {"seqlens_q", "seqlens_k", "starts_q", "starts_k"}) {
    AddTensor(name, "INT64", {-1}, model->mutable_inputs());
  }
  for (const char* name : {"alibi_slopes", "sinks"}) {
    AddTensor(name, "FP32", {-1}, model->mutable_inputs());
  }
  AddTensor("output", "FP16", {-1, -1, -1, -1}, model->mutable_outputs());
  AddTensor("lse", "FP32", {-1, -1, -1}, model->mutable_outputs());
}

using Base = inference::GRPCInferenceService::WithGenericMethod_ModelInfer<
    inference::GRPCInferenceService::WithCallbackMethod_ServerLive<
        inference::GRPCInferenceService::WithCallbackMethod_ServerReady<
            inference::GRPCInferenceService::WithCallbackMethod_ModelReady<
                inference::GRPCInferenceService::
                    WithCallbackMethod_ServerMetadata<
                        inference::GRPCInferenceService::
                            WithCallbackMethod_ModelMetadata<
                                inference::GRPCInferenceService::Service>>>>>>;
using Context = grpc::CallbackServerContext;
using Reactor = grpc::ServerUnaryReactor;

constexpr char kService[] = "/inference.GRPCInferenceService/";

class InferenceService final : public Base {
 public:
  InferenceService(CallEnvironment* environment, const Health* health)
      : env_(environment), health_(health) {}

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest*,
                      inference::ServerLiveResponse* reply) override {
    reply->set_live(health_->why_not_live().empty());
    return Answer(context, "ServerLive", absl::OkStatus());
  }
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest*,
                       inference::ServerReadyResponse* reply) override {
    reply->set_ready(health_->why_not_ready().empty());
    return Answer(context, "ServerReady", absl::OkStatus());
  }
  Reactor* ModelReady(Context* context,
                      const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* reply) override {
    reply->set_ready(CheckModel(request->name(), request->version()).ok() &&
                     health_->why_not_ready().empty());
    return Answer(context, "ModelReady", absl::OkStatus());
  }
  Reactor* ServerMetadata(Context* context,
                          const inference::ServerMetadataRequest*,
                          inference::ServerMetadataResponse* reply) override {
    reply->set_name("attendant-server");
    reply->set_version(ServerVersion());
    return Answer(context, "ServerMetadata", absl::OkStatus());
  }
  Reactor* ModelMetadata(Context* context,
                         const inference::ModelMetadataRequest* request,
                         ModelMetadataResponse* reply) override {
    const absl::Status status = CheckModel(request->name(), request->version());
    if (status.ok()) DescribeModel(reply);
    return Answer(context, "ModelMetadata", status);
  }

 private:
  // gRPC sends no message with an error, so access may be looked at last.
  Reactor* Answer(Context* context, const char* method, absl::Status status) {
    if (absl::Status access =
            CheckAccess(*env_, *context, std::string(kService) + method)
                .status();
        !access.ok()) {
      status = access;
    }
    const grpc::Status answer = ToGrpcStatus(status);
    env_->metrics->Started(Method::kOther);
    env_->metrics->Finished(Method::kOther, answer.error_code());
    Reactor* reactor = context->DefaultReactor();
    reactor->Finish(answer);
    return reactor;
  }

  CallEnvironment* const env_;
  const Health* const health_;
};

}  // namespace

const UnaryDoor kInferDoor = {Method::kModelInfer, DecodeInfer};

std::unique_ptr<grpc::Service> MakeInferenceService(
    CallEnvironment* environment, const Health* health) {
  return std::make_unique<InferenceService>(environment, health);
}

}  // namespace attendant::server
