#include "server/connections/connection_metrics.h"

#include "server/connections/accept_guard.h"
#include "server/monitoring/metric_families.h"

namespace attendant::server {

void AppendConnectionMetrics(ConnectionGate* gate,
                             std::vector<prometheus::MetricFamily>* families) {
  const ConnectionCounts counts =
      gate != nullptr ? gate->Counts() : ConnectionCounts();
  AddGauge(families, "attendant_open_connections",
           "gRPC connections now; 0 where no limit makes the server count.",
           static_cast<double>(counts.open));
  prometheus::MetricFamily& refused =
      AddFamily(families, "attendant_connections_refused_total",
                "Connections turned away, by the bound that they passed.",
                prometheus::MetricType::Counter);
  AddSample(&refused, {{"bound", "max_connections"}},
            static_cast<double>(counts.refused));
  AddSample(&refused, {{"bound", "max_connections_per_peer"}},
            static_cast<double>(counts.refused_peer));
  AddSample(&refused, {{"bound", "descriptors"}},
            static_cast<double>(RefusedConnections()));
}

}  // namespace attendant::server
