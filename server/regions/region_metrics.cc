#include "server/regions/region_metrics.h"

#include "server/monitoring/metric_families.h"

namespace attendant::server {

void AppendRegionMetrics(const RegionCounts& counts,
                         std::vector<prometheus::MetricFamily>* families) {
  const auto add = [&](const char* name, const char* help, const auto& values) {
    prometheus::MetricFamily& family =
        AddFamily(families, name, help, prometheus::MetricType::Gauge);
    for (int kind = 1; kind < kNumRegionKinds; ++kind) {
      AddSample(&family,
                {{"kind", RegionKindName(static_cast<RegionKind>(kind))}},
                static_cast<double>(values[kind]));
    }
  };
  add("attendant_regions", "Tensor regions that are held, by kind.",
      counts.regions);
  add("attendant_region_bytes", "Bytes of tensor regions that are held.",
      counts.bytes);
}

}  // namespace attendant::server
