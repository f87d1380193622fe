// Connections: what the gate, and the guard of descriptors, counted.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "server/connections/connection_gate.h"

namespace attendant::server {

// `gate` null = no limits, nothing counted: zeros.
void AppendConnectionMetrics(ConnectionGate* gate,
                             std::vector<prometheus::MetricFamily>* families);

}  // namespace attendant::server
