// Uses every public header of the installed client; exits with 0 if it works.
#include <chrono>
#include <cstdio>

#include "client/cpp/attendant_client.h"
#include "client/cpp/merge_partials.h"

#ifdef GRPCPP_GRPCPP_H
#error "the client's headers must not bring gRPC along"
#endif

namespace client = attendant::client;

int main() {
  const float out[2] = {1, 3};
  const float lse[1] = {0};
  const client::Partial partials[] = {
      {{out, client::DataType::kFloat32, {1, 1, 1, 2}, {}},
       {lse, client::DataType::kFloat32, {1, 1, 1}, {}}}};
  const auto merged = client::MergePartials(client::Layout::kBSHD, partials);
  if (!merged.ok() || merged->out.as<float>()[1] != 3) return 1;

  const auto refused = client::Client::Create("");
  const auto detail = client::GetErrorDetail(refused.status());
  if (!detail.has_value() || detail->field != "target") return 2;

  // Nothing listens on the discard port.
  client::ClientOptions options;
  options.retry.max_attempts = 1;
  const auto nobody = client::Client::Create("127.0.0.1:9", options);
  if (!nobody.ok()) return 3;
  const auto info = nobody->GetServerInfo(std::chrono::seconds(10));
  std::printf("%s\n", info.status().ToString().c_str());
  return info.status().code() == absl::StatusCode::kUnavailable ? 0 : 4;
}
