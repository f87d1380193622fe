#include "server/regions/region_options.h"

namespace attendant::server {

void RegionOptions::ApplyTo(Bounds* bounds) const {
  const bool any = served();
  bounds->max_regions = any ? max_regions : 0;
  bounds->max_regions_per_owner = any ? max_regions_per_owner : 0;
  bounds->max_region_bytes = any ? max_bytes : 0;
  bounds->max_region_bytes_per_owner = any && max_bytes_per_owner > 0
                                           ? max_bytes_per_owner
                                           : bounds->max_region_bytes;
  bounds->region_idle_seconds = any ? idle_seconds : 0;
}

std::vector<std::string> RegionOptions::KindNames(bool on_gpu) const {
  std::vector<std::string> names;
  const auto add = [&](bool served, RegionKind kind) {
    if (served) names.push_back(RegionKindName(kind));
  };
  add(buffers, RegionKind::kHostBuffer);
  add(buffers && on_gpu, RegionKind::kDeviceBuffer);
  add(!socket.empty(), RegionKind::kMemfd);
  add(posix, RegionKind::kPosix);
  add(cuda_ipc && on_gpu, RegionKind::kCudaIpc);
  add(!socket.empty() && on_gpu, RegionKind::kCudaVmm);
  return names;
}

}  // namespace attendant::server
