// Asks a server for one causal attention and prints what served it:
//   attend_once [host:port]
#include <chrono>
#include <cstdio>
#include <vector>

#include "client/cpp/attendant_client.h"

namespace client = attendant::client;

int main(int argc, char** argv) {
  const absl::StatusOr<client::Client> attendant =
      client::Client::Create(argc > 1 ? argv[1] : "localhost:50051");
  if (!attendant.ok()) {
    std::fprintf(stderr, "%s\n", attendant.status().ToString().c_str());
    return 1;
  }

  // [batch, seqlen, heads, head_dim]; q is 0, so visible keys weigh the same.
  const std::vector<int64_t> shape = {1, 128, 8, 64};
  const std::vector<float> q(128 * 8 * 64, 0.0f);
  const std::vector<float> k(q.size(), 1.0f);
  std::vector<float> v(q.size());
  for (size_t e = 0; e < v.size(); ++e) v[e] = static_cast<float>(e / 512);
  client::AttendArgs args;
  args.q = {q.data(), client::DataType::kFloat32, shape, {}};
  args.k = {k.data(), client::DataType::kFloat32, shape, {}};
  args.v = {v.data(), client::DataType::kFloat32, shape, {}};
  args.causal = true;

  const absl::StatusOr<client::AttendResult> result =
      attendant->Attend(args, std::chrono::seconds(30));
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
    return 1;
  }
  // Row i is the mean of 0, 1, ..., i.
  const float last = result->out.as<float>()[127 * 512];
  std::printf("the last row is %g, by hand 63.5\n", last);
  std::printf("served by %s on %s, %.0f us at the server\n",
              result->served_by.kernel.c_str(),
              client::Name(result->served_by.backend),
              static_cast<double>(result->exposed.total_ns) * 1e-3);
  return last == 63.5f ? 0 : 1;
}
