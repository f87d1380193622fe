// Spans as OTLP/HTTP's JSON (ExportTraceServiceRequest).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/tracing/span.h"

namespace attendant::server {

// What all spans of a process share: "service.name" and the like.
using TraceResource = std::vector<std::pair<std::string, std::string>>;

std::string RenderOtlpJson(const TraceResource& resource,
                           const std::vector<Span>& spans);

}  // namespace attendant::server
