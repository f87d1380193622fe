#include "server/tracing/otlp_json.h"

#include <nlohmann/json.hpp>

namespace attendant::server {
namespace {

using Json = nlohmann::json;

constexpr int kSpanKindInternal = 1;
constexpr int kSpanKindServer = 2;
constexpr int kStatusError = 2;

Json Attribute(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}

// 64-bit numbers are strings in protobuf's JSON.
Json Attribute(const std::string& key, int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

Json ToJson(const Span& span) {
  Json json = {{"traceId", span.trace_id},
               {"spanId", span.span_id},
               {"name", span.name},
               {"kind", span.is_call ? kSpanKindServer : kSpanKindInternal},
               {"startTimeUnixNano", std::to_string(span.begin_unix_ns)},
               {"endTimeUnixNano", std::to_string(span.end_unix_ns)},
               {"attributes", Json::array()}};
  if (!span.parent_id.empty()) json["parentSpanId"] = span.parent_id;
  for (const auto& [key, value] : span.attributes) {
    json["attributes"].push_back(std::visit(
        [&key = key](const auto& v) { return Attribute(key, v); }, value));
  }
  if (!span.error.empty()) {
    json["status"] = {{"code", kStatusError}, {"message", span.error}};
  }
  return json;
}

}  // namespace

std::string RenderOtlpJson(const TraceResource& resource,
                           const std::vector<Span>& spans) {
  Json attributes = Json::array();
  for (const auto& [key, value] : resource) {
    attributes.push_back(Attribute(key, value));
  }
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(ToJson(span));
  const Json request = {
      {"resourceSpans",
       Json::array({{{"resource", {{"attributes", attributes}}},
                     {"scopeSpans",
                      Json::array({{{"scope", {{"name", "attendant-server"}}},
                                    {"spans", list}}})}}})}};
  // An error's text may quote a caller's bytes.
  return request.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace attendant::server
