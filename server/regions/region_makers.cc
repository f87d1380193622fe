#include "server/regions/region_makers.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/regions/device_region.h"
#include "server/regions/host_buffer.h"
#include "server/regions/memfd_memory.h"
#include "server/regions/posix_memory.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

using Made = absl::StatusOr<std::unique_ptr<RegionMemory>>;

}  // namespace

RegionMakers::RegionMakers(const RegionOptions& options,
                           AttentionEngine* engine, RegionRegistry* registry)
    : options_(options), engine_(engine), registry_(registry) {}

absl::Status RegionMakers::CheckDevice(const char* what) const {
  if (engine_->region_device() != nullptr) return absl::OkStatus();
  return UnimplementedField(what, "of a GPU",
                            "of the host: this server computes on the CPU");
}

absl::StatusOr<RegionEntry> RegionMakers::AllocateBuffer(
    const std::string& owner, const v1::AllocateBufferRequest& request) const {
  if (!options_.buffers) {
    return UnimplementedField(
        "AllocateBuffer", "called",
        "served: start the server with --regions=buffers");
  }
  RegionDevice* device = engine_->region_device();
  const int64_t bytes = request.byte_length();
  switch (request.memory()) {
    case v1::AllocateBufferRequest::MEMORY_UNSPECIFIED:
    case v1::AllocateBufferRequest::MEMORY_DEVICE:
      if (device != nullptr) {
        return registry_->Add(
            owner, RegionKind::kDeviceBuffer, bytes, true, [&]() -> Made {
              ASSIGN_OR_RETURN(auto memory, device->Allocate(bytes));
              return MakeDeviceRegion(std::move(memory), bytes, true, device);
            });
      }
      if (request.memory() == v1::AllocateBufferRequest::MEMORY_DEVICE) {
        return CheckDevice("memory");
      }
      [[fallthrough]];
    case v1::AllocateBufferRequest::MEMORY_HOST:
      return registry_->Add(owner, RegionKind::kHostBuffer, bytes, true,
                            [&] { return MakeHostBuffer(bytes, device); });
    default:
      return UnimplementedField("memory", absl::StrCat(request.memory()),
                                "HOST or DEVICE");
  }
}

absl::StatusOr<RegionEntry> RegionMakers::RegisterPosix(
    const std::string& owner, const v1::RegisterPosixRequest& request) const {
  if (!options_.posix) {
    return UnimplementedField("RegisterPosix", "called",
                              "served: start the server with --regions=posix");
  }
  return registry_->Add(
      owner, RegionKind::kPosix, request.byte_length(), true, [&] {
        return OpenPosixMemory(request.shm_name(), request.byte_length(),
                               request.read_only());
      });
}

absl::StatusOr<RegionEntry> RegionMakers::RegisterMemfd(
    const std::string& owner,
    const v1::RegionDoorRequest::RegisterMemfd& request, UniqueFd fd) const {
  return registry_->Add(
      owner, RegionKind::kMemfd, request.byte_length(), false, [&] {
        return MapMemfd(std::move(fd), request.byte_length(),
                        request.read_only(), engine_->region_device());
      });
}

absl::Status RegionMakers::CheckUuid(const std::string& uuid) const {
  const std::string& own = engine_->device().uuid;
  if (uuid == own) return absl::OkStatus();
  return InvalidField("device_uuid", uuid.empty() ? "unset" : uuid,
                      absl::StrCat(own, ", the GPU that this server uses"));
}

absl::StatusOr<RegionEntry> RegionMakers::RegisterCudaVmm(
    const std::string& owner,
    const v1::RegionDoorRequest::RegisterCudaVmm& request, UniqueFd fd) const {
  RETURN_IF_ERROR(CheckDevice("descriptor"));
  RETURN_IF_ERROR(CheckUuid(request.device_uuid()));
  RegionDevice* device = engine_->region_device();
  const int64_t bytes = request.byte_length();
  return registry_->Add(
      owner, RegionKind::kCudaVmm, bytes, false, [&]() -> Made {
        ASSIGN_OR_RETURN(auto memory, device->ImportVmm(fd.get(), bytes,
                                                        request.ready_event()));
        return MakeDeviceRegion(std::move(memory), bytes, !request.read_only(),
                                device);
      });
}

absl::StatusOr<RegionEntry> RegionMakers::RegisterCudaIpc(
    const std::string& owner, const v1::RegisterCudaIpcRequest& request) const {
  RETURN_IF_ERROR(CheckDevice("handle"));
  if (!options_.cuda_ipc) {
    return UnimplementedField(
        "RegisterCudaIpc", "called",
        "served: start the server with --regions=cuda_ipc");
  }
  RETURN_IF_ERROR(CheckUuid(request.device_uuid()));
  RegionDevice* device = engine_->region_device();
  const int64_t bytes = request.byte_length();
  return registry_->Add(
      owner, RegionKind::kCudaIpc, bytes, true, [&]() -> Made {
        ASSIGN_OR_RETURN(
            auto memory,
            device->OpenIpc(request.handle(), request.byte_offset(), bytes,
                            request.ready_event()));
        return MakeDeviceRegion(std::move(memory), bytes, !request.read_only(),
                                device);
      });
}

}  // namespace attendant::server
