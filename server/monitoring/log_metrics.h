// attendant_log_lines_lost_total: what the log could not tell.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"

namespace attendant::server {

void AppendLogMetrics(std::vector<prometheus::MetricFamily>* families);

}  // namespace attendant::server
