// Gauges of regions for /metrics.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "server/regions/region_registry.h"

namespace attendant::server {

// attendant_regions{kind} and attendant_region_bytes{kind}, of every kind.
void AppendRegionMetrics(const RegionCounts& counts,
                         std::vector<prometheus::MetricFamily>* families);

}  // namespace attendant::server
