#include "server/calls/attention_service.h"

#include <grpcpp/support/proto_buffer_reader.h>

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "attendant/v1/attention.grpc.pb.h"
#include "server/calls/attend_stream_call.h"
#include "server/calls/inference_service.h"
#include "server/request/errors.h"
#include "server/request/wire_codec.h"
#include "server/server_info.h"

namespace attendant::server {
namespace {

constexpr char kGetServerInfo[] =
    "/attendant.v1.AttentionService/GetServerInfo";
constexpr char kAttend[] = "/attendant.v1.AttentionService/Attend";
constexpr char kAttendStream[] = "/attendant.v1.AttentionService/AttendStream";

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
    v1::AttentionService::WithGenericMethod_AttendStream<
        v1::AttentionService::WithRawCallbackMethod_GetServerInfo<
            v1::AttentionService::Service>>>;

// Attend and AttendStream are the generic service's. At least one method has to
// be an ordinary one: from it gRPC takes the name that reflection tells.
class NamedService final : public NamedBase {
 public:
  explicit NamedService(CallEnvironment* environment) : env_(environment) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const grpc::ByteBuffer* message,
                                          grpc::ByteBuffer* reply) override {
    env_->metrics->Started(Method::kGetServerInfo);
    absl::Status status = CheckAccess(*env_, *context, kGetServerInfo).status();
    if (status.ok()) status = CheckEmptyRequest(*message);
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
    const RegionOptions& regions = env_->region_options;
    for (const std::string& kind :
         regions.KindNames(env_->engine->device().is_cuda)) {
      info.add_region_kinds(kind);
    }
    info.set_region_socket(regions.socket);
    return info;
  }

  CallEnvironment* const env_;
  const Clock::time_point started_ = Clock::now();
};

// Deletes itself. Ends a call before its body is read.
class RefusedCall final : public grpc::ServerGenericBidiReactor {
 public:
  RefusedCall(CallEnvironment* environment, Method method,
              const absl::Status& status) {
    const grpc::Status answer = ToGrpcStatus(status);
    environment->metrics->Started(method);
    environment->metrics->Finished(method, answer.error_code());
    Finish(answer);
  }
  void OnDone() override { delete this; }
};

}  // namespace

AttentionService::AttentionService(CallEnvironment* environment)
    : env_(environment) {}

grpc::ServerGenericBidiReactor* AttentionService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  const bool stream = context->method() == kAttendStream;
  const UnaryDoor* door = nullptr;
  if (context->method() == kAttend) door = &kAttendDoor;
  if (context->method() == kModelInferMethod) door = &kInferDoor;
  Method method = door == nullptr ? Method::kOther : door->method;
  if (stream) method = Method::kAttendStream;
  const auto identity = CheckAccess(*env_, *context, context->method());
  if (!identity.ok()) return new RefusedCall(env_, method, identity.status());
  if (stream) return StartAttendStreamCall(env_, context, *identity);
  if (door != nullptr) return StartAttendCall(env_, context, *door, *identity);
  return new RefusedCall(
      env_, method,
      absl::UnimplementedError(absl::StrCat(
          "there is no method ", absl::CEscape(Shortened(context->method())))));
}

std::unique_ptr<grpc::Service> MakeNamedService(CallEnvironment* environment) {
  return std::make_unique<NamedService>(environment);
}

}  // namespace attendant::server
