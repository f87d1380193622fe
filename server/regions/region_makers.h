// Requests for regions -> regions: what the RPCs and the socket have in common.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "attendant/v1/region.pb.h"
#include "server/connections/unique_fd.h"
#include "server/engine/attention_engine.h"
#include "server/regions/region_options.h"
#include "server/regions/region_registry.h"

namespace attendant::server {

// Thread-safe. Errors name field, value and bound; UNIMPLEMENTED for a kind
// that this server was not told to serve or that its device cannot.
class RegionMakers {
 public:
  // Both outlive it.
  RegionMakers(const RegionOptions& options, AttentionEngine* engine,
               RegionRegistry* registry);

  absl::StatusOr<RegionEntry> AllocateBuffer(
      const std::string& owner, const v1::AllocateBufferRequest& request) const;
  absl::StatusOr<RegionEntry> RegisterPosix(
      const std::string& owner, const v1::RegisterPosixRequest& request) const;
  absl::StatusOr<RegionEntry> RegisterCudaIpc(
      const std::string& owner,
      const v1::RegisterCudaIpcRequest& request) const;
  absl::StatusOr<RegionEntry> RegisterMemfd(
      const std::string& owner,
      const v1::RegionDoorRequest::RegisterMemfd& request, UniqueFd fd) const;
  absl::StatusOr<RegionEntry> RegisterCudaVmm(
      const std::string& owner,
      const v1::RegionDoorRequest::RegisterCudaVmm& request, UniqueFd fd) const;

 private:
  absl::Status CheckDevice(const char* what) const;
  absl::Status CheckUuid(const std::string& uuid) const;

  const RegionOptions options_;
  AttentionEngine* const engine_;
  RegionRegistry* const registry_;
};

}  // namespace attendant::server
