#include "server/regions/region_service.h"

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attendant/v1/region.grpc.pb.h"
#include "kernels/base/status_macros.h"
#include "server/regions/region_makers.h"
#include "server/regions/region_transfer.h"
#include "server/request/errors.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

using grpc::CallbackServerContext;
using grpc::ServerUnaryReactor;

using Service = v1::RegionService;
using RegionServiceBase = Service::WithCallbackMethod_AllocateBuffer<
    Service::WithCallbackMethod_RegisterPosix<
        Service::WithCallbackMethod_RegisterCudaIpc<
            Service::WithRawCallbackMethod_Write<
                Service::WithCallbackMethod_Read<
                    Service::WithCallbackMethod_Release<
                        Service::WithCallbackMethod_List<
                            Service::Service>>>>>>>;

class RegionServiceImpl final : public RegionServiceBase {
 public:
  RegionServiceImpl(const RegionOptions& options, CallEnvironment* environment)
      : env_(environment),
        makers_(options, environment->engine, &environment->regions) {}

  ServerUnaryReactor* AllocateBuffer(CallbackServerContext* context,
                                     const v1::AllocateBufferRequest* request,
                                     v1::RegionStatus* reply) override {
    return Make(context, "AllocateBuffer", *request, reply,
                [this, request](const auto& owner) {
                  return makers_.AllocateBuffer(owner, *request);
                });
  }
  ServerUnaryReactor* RegisterPosix(CallbackServerContext* context,
                                    const v1::RegisterPosixRequest* request,
                                    v1::RegionStatus* reply) override {
    return Make(context, "RegisterPosix", *request, reply,
                [this, request](const auto& owner) {
                  return makers_.RegisterPosix(owner, *request);
                });
  }
  ServerUnaryReactor* RegisterCudaIpc(CallbackServerContext* context,
                                      const v1::RegisterCudaIpcRequest* request,
                                      v1::RegionStatus* reply) override {
    return Make(context, "RegisterCudaIpc", *request, reply,
                [this, request](const auto& owner) {
                  return makers_.RegisterCudaIpc(owner, *request);
                });
  }

  ServerUnaryReactor* Release(CallbackServerContext* context,
                              const v1::ReleaseRequest* request,
                              v1::ReleaseResponse*) override {
    Begin();
    absl::Status status = Check(*context, "Release", *request);
    if (status.ok()) {
      status = env_->regions.Release(RegionOwner(*context), request->name());
    }
    return End(context, status);
  }
  ServerUnaryReactor* List(CallbackServerContext* context,
                           const v1::ListRequest* request,
                           v1::ListResponse* reply) override {
    Begin();
    const absl::Status status = Check(*context, "List", *request);
    if (status.ok()) {
      for (RegionEntry& entry : env_->regions.List(RegionOwner(*context))) {
        // The entry itself holds the region too.
        entry.uses -= entry.uses > 0 ? 1 : 0;
        *reply->add_regions() = DescribeRegion(entry, env_->engine->device());
      }
    }
    return End(context, status);
  }

  grpc::ServerReadReactor<grpc::ByteBuffer>* Write(
      CallbackServerContext* context, grpc::ByteBuffer* reply) override {
    return StartRegionWrite(env_, context, CheckMay(*context, "Write"),
                            RegionOwner(*context), reply);
  }
  grpc::ServerWriteReactor<v1::ReadResponse>* Read(
      CallbackServerContext* context, const v1::ReadRequest* request) override {
    return StartRegionRead(env_, CheckMay(*context, "Read"),
                           RegionOwner(*context), *request);
  }

 private:
  using Maker =
      std::function<absl::StatusOr<RegionEntry>(const std::string& owner)>;

  void Begin() { env_->metrics->Started(Method::kRegions); }

  ServerUnaryReactor* End(CallbackServerContext* context,
                          const absl::Status& status) {
    ServerUnaryReactor* reactor = context->DefaultReactor();
    Finish(status, reactor);
    return reactor;
  }

  void Finish(const absl::Status& status, ServerUnaryReactor* reactor) {
    const grpc::Status answer = ToGrpcStatus(status);
    env_->metrics->Finished(Method::kRegions, answer.error_code());
    reactor->Finish(answer);
  }

  absl::Status CheckMay(const CallbackServerContext& context,
                        const std::string& method) const {
    return CheckAccess(*env_, context, "/attendant.v1.RegionService/" + method)
        .status();
  }

  absl::Status Check(const CallbackServerContext& context,
                     const std::string& method,
                     const google::protobuf::Message& request) const {
    RETURN_IF_ERROR(CheckMay(context, method));
    RETURN_IF_ERROR(CheckRegionOwner(RegionOwner(context)));
    return CheckNoUnknownFields(request);
  }

  ServerUnaryReactor* Make(CallbackServerContext* context,
                           const std::string& method,
                           const google::protobuf::Message& request,
                           v1::RegionStatus* reply, Maker make) {
    Begin();
    absl::Status status = Check(*context, method, request);
    if (status.ok() && env_->draining) {
      status = absl::UnavailableError("the server is draining");
    }
    if (!status.ok()) return End(context, status);
    ServerUnaryReactor* reactor = context->DefaultReactor();
    const auto made = std::make_shared<absl::StatusOr<RegionEntry>>();
    env_->engine->CopyAsync(
        1,
        [made, make = std::move(make), owner = RegionOwner(*context)](int) {
          *made = make(owner);
        },
        [this, made, reply, reactor] {
          if (made->ok()) {
            *reply = DescribeRegion(**made, env_->engine->device());
          }
          Finish(made->status(), reactor);
        });
    return reactor;
  }

  CallEnvironment* const env_;
  const RegionMakers makers_;
};

}  // namespace

std::string RegionOwner(const CallbackServerContext& context) {
  const auto [begin, end] =
      context.client_metadata().equal_range(kRegionOwnerMetadata);
  if (begin == end || std::next(begin) != end) return "";
  return std::string(begin->second.data(), begin->second.size());
}

v1::RegionStatus DescribeRegion(const RegionEntry& entry,
                                const DeviceDescription& device) {
  v1::RegionStatus status;
  status.set_name(entry.name);
  status.set_kind(static_cast<v1::RegionKind>(entry.kind));
  status.set_byte_length(entry.memory->bytes());
  status.set_writable(entry.memory->writable());
  status.set_uses(entry.uses);
  if (entry.memory->device() != nullptr) {
    status.set_device_index(device.index);
    status.set_device_uuid(device.uuid);
  }
  return status;
}

std::unique_ptr<grpc::Service> MakeRegionService(const RegionOptions& options,
                                                 CallEnvironment* environment) {
  return std::make_unique<RegionServiceImpl>(options, environment);
}

}  // namespace attendant::server
