// process_*: what Prometheus clients say of their own process.
#pragma once

#include <cstdint>
#include <vector>

#include "prometheus/metric_family.h"

namespace attendant::server {

// Read from /proc/self; 0 where a value cannot be read.
struct ProcessStats {
  double cpu_seconds = 0;
  int64_t resident_bytes = 0;
  int64_t virtual_bytes = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
  int64_t threads = 0;
  double start_time_seconds = 0;  // since the epoch
};
ProcessStats ReadProcessStats();

void AppendProcessMetrics(std::vector<prometheus::MetricFamily>* families);

}  // namespace attendant::server
