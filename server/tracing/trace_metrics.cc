#include "server/tracing/trace_metrics.h"

#include "server/monitoring/metric_families.h"

namespace attendant::server {

void AppendTraceMetrics(const SpanExporter* exporter,
                        std::vector<prometheus::MetricFamily>* families) {
  const SpanExporter::Counts counts =
      exporter != nullptr ? exporter->counts() : SpanExporter::Counts();
  prometheus::MetricFamily& family = AddFamily(
      families, "attendant_trace_spans_total",
      "Spans of traced calls: exported to the collector, or dropped because "
      "it was too slow.",
      prometheus::MetricType::Counter);
  AddSample(&family, {{"result", "exported"}},
            static_cast<double>(counts.exported));
  AddSample(&family, {{"result", "dropped"}},
            static_cast<double>(counts.dropped));
}

}  // namespace attendant::server
