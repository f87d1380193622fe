// attendant_trace_spans_total: what became of spans.
#pragma once

#include <vector>

#include "prometheus/metric_family.h"
#include "server/tracing/span_exporter.h"

namespace attendant::server {

// `exporter` null = zeros.
void AppendTraceMetrics(const SpanExporter* exporter,
                        std::vector<prometheus::MetricFamily>* families);

}  // namespace attendant::server
