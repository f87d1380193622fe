// The least HTTP client: one POST a connection, for a collector nearby.
#pragma once

#include <chrono>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::server {

// http://HOST[:PORT][/PATH]
struct HttpUrl {
  std::string host;  // without brackets
  std::string port;
  std::string path;  // begins with '/'
};
// `default_port` and `default_path` for what is not there. INVALID_ARGUMENT for
// anything else, https too: "must be http://HOST[:PORT][/PATH]".
absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& text,
                                     const std::string& default_port,
                                     const std::string& default_path);

// The same with OTLP's defaults, port 4318 and /v1/traces.
absl::StatusOr<HttpUrl> OtlpUrl(const std::string& text);

// The status code of the answer. UNAVAILABLE if there was none in time. Blocks.
absl::StatusOr<int> HttpPost(const HttpUrl& url, const std::string& type,
                             const std::string& body,
                             std::chrono::milliseconds timeout);

}  // namespace attendant::server
