#include "server/monitoring/log_metrics.h"

#include "server/log/log_writer.h"
#include "server/monitoring/metric_families.h"

namespace attendant::server {

void AppendLogMetrics(std::vector<prometheus::MetricFamily>* families) {
  const LostLogLines lost = LostLines();
  prometheus::MetricFamily& family =
      AddFamily(families, "attendant_log_lines_lost_total",
                "Log lines that were not written: whoever reads stderr was too "
                "slow, or the system took no bytes.",
                prometheus::MetricType::Counter);
  AddSample(&family, {{"reason", "slow"}}, static_cast<double>(lost.no_room));
  AddSample(&family, {{"reason", "failed"}}, static_cast<double>(lost.failed));
}

}  // namespace attendant::server
