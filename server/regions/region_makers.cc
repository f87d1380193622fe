#include "server/regions/region_makers.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"
#include "server/regions/host_buffer.h"
#include "server/regions/memfd_memory.h"
#include "server/regions/posix_memory.h"

namespace attendant::server {

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
        return UnimplementedField("memory", "DEVICE", "HOST");
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

absl::StatusOr<RegionEntry> RegionMakers::RegisterCudaVmm(
    const std::string&, const v1::RegionDoorRequest::RegisterCudaVmm&,
    UniqueFd) const {
  RETURN_IF_ERROR(CheckDevice("descriptor"));
  return UnimplementedField("register_cuda_vmm", "set", "unset");
}

absl::StatusOr<RegionEntry> RegionMakers::RegisterCudaIpc(
    const std::string&, const v1::RegisterCudaIpcRequest&) const {
  RETURN_IF_ERROR(CheckDevice("handle"));
  return UnimplementedField("RegisterCudaIpc", "called",
                            "served: start the server with --regions=cuda_ipc");
}

}  // namespace attendant::server
