#include "server/attention_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "attendant/v1/attention.grpc.pb.h"
#include "server/errors.h"
#include "server/inference_service.h"
#include "server/server_info.h"
#include "server/wire_codec.h"

namespace attendant::server {
namespace {

constexpr char kAttend[] = "/attendant.v1.AttentionService/Attend";

grpc::ByteBuffer Serialized(const google::protobuf::Message& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// OK, or why `message` is not the request that has no fields.
absl::Status CheckEmptyRequest(grpc::ByteBuffer message) {
  grpc::ProtoBufferReader reader(&message);
  v1::GetServerInfoRequest request;
  if (!request.ParseFromZeroCopyStream(&reader)) {
    return absl::InvalidArgumentError(
        "the message is not a GetServerInfoRequest");
  }
  return CheckNoUnknownFields(request);
}

using NamedBase = v1::AttentionService::WithGenericMethod_Attend<
    v1::AttentionService::WithRawCallbackMethod_GetServerInfo<
        v1::AttentionService::Service>>;

// Attend is the generic service's. At least one method has to be an ordinary
// one: from it gRPC takes the name that reflection tells.
class NamedService final : public NamedBase {
 public:
  explicit NamedService(CallEnvironment* environment) : env_(environment) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* message,
                                          grpc::ByteBuffer* reply) override {
    env_->metrics->Started(Method::kGetServerInfo);
    const absl::Status status = CheckEmptyRequest(*message);
    if (status.ok()) *reply = Serialized(Describe());
    const grpc::Status answer = ToGrpcStatus(status);
    env_->metrics->Finished(Method::kGetServerInfo, answer.error_code());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(answer);
    return reactor;
  }

 private:
  v1::GetServerInfoResponse Describe() const {
    v1::GetServerInfoResponse info =
        DescribeServer(env_->engine->device(), env_->bounds);
    info.set_uptime_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(
                           Clock::now() - started_)
                           .count());
    return info;
  }

  CallEnvironment* const env_;
  const Clock::time_point started_ = Clock::now();
};

// Deletes itself. Refuses a method that does not exist.
class UnknownCall final : public grpc::ServerGenericBidiReactor {
 public:
  UnknownCall(CallEnvironment* environment, const std::string& method) {
    environment->metrics->Started(Method::kOther);
    environment->metrics->Finished(Method::kOther,
                                   grpc::StatusCode::UNIMPLEMENTED);
    Finish(grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                        "there is no method " + method));
  }
  void OnDone() override { delete this; }
};

}  // namespace

AttentionService::AttentionService(CallEnvironment* environment)
    : env_(environment) {}

grpc::ServerGenericBidiReactor* AttentionService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  if (context->method() == kAttend) return StartAttendCall(env_, context);
  if (context->method() == kModelInferMethod) {
    return StartAttendCall(env_, context, kInferDoor);
  }
  return new UnknownCall(env_, context->method());
}

std::unique_ptr<grpc::Service> MakeNamedService(CallEnvironment* environment) {
  return std::make_unique<NamedService>(environment);
}

}  // namespace attendant::server
