#include "tests/integration/load.h"

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <thread>

#include "tests/integration/real_server.h"
#include "tests/testing/random.h"

namespace attendant::testing {

int64_t Tally::all_ended() const {
  int64_t sum = 0;
  for (const auto& count : ended) sum += count;
  return sum;
}

void RunLoad(const LoadOptions& options,
             const std::vector<v1::AttendRequest>& requests, Tally* tally) {
  std::atomic<int64_t> next{0};
  std::vector<std::jthread> callers;
  for (int t = 0; t < options.threads; ++t) {
    callers.emplace_back([&, t] {
      const auto stub = ConnectTo(options.address);
      RandomBits random(options.seed * 1000 + static_cast<uint64_t>(t));
      for (int64_t n = next++; n < options.requests; n = next++) {
        const auto which = static_cast<size_t>(
            random.Below(static_cast<int64_t>(requests.size())));
        grpc::ClientContext context;
        SetPatience(&context);
        if (options.prepare) options.prepare(n, &context);
        v1::AttendResponse reply;
        ++tally->begun;
        const grpc::Status status =
            stub->Attend(&context, requests[which], &reply);
        ++tally->ended[status.error_code()];
        if (status.ok() && options.check) options.check(which, reply);
        if (options.ended && !options.ended(n, status)) return;
      }
    });
  }
}

}  // namespace attendant::testing
