// Sends mixed requests to a running server and prints the tally as JSON:
//   integration_load HOST:PORT REQUESTS THREADS
// One in eight is malformed. Exit code 1 if an answer was wrong.
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "tests/integration/load.h"
#include "tests/integration/mixed_problems.h"
#include "tests/integration/wire_problem.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

int Main(const std::string& address, int64_t requests, int threads) {
  const std::vector<ProblemOptions> problems = MixedProblems();
  std::vector<v1::AttendRequest> messages;
  std::vector<Expectation> expectations;
  for (const ProblemOptions& options : problems) {
    const HostProblem problem(options);
    expectations.emplace_back(problem);
    messages.push_back(ToWire(problem));
  }
  const auto malformed = MalformedRequests();
  const size_t bad = problems.size() / 7;
  for (size_t i = 0; i < bad; ++i) {
    malformed[i * malformed.size() / bad].mutate(
        messages.emplace_back(GoodRequest()));
  }
  std::atomic<int> wrong{0};
  LoadOptions load;
  load.address = address;
  load.threads = threads;
  load.requests = requests;
  load.check = [&](size_t which, const v1::AttendResponse& reply) {
    if (which >= problems.size()) return;
    HostProblem problem(problems[which]);
    if (!FromWire(reply, &problem) || !Matches(problem, expectations[which])) {
      ++wrong;
    }
  };
  Tally tally;
  RunLoad(load, messages, &tally);
  std::printf(
      "{\"begun\":%lld,\"ok\":%lld,\"invalid\":%lld,\"ended\":%lld,"
      "\"wrong\":%d}\n",
      static_cast<long long>(tally.begun),
      static_cast<long long>(tally.ended_with(grpc::OK)),
      static_cast<long long>(tally.ended_with(grpc::INVALID_ARGUMENT)),
      static_cast<long long>(tally.all_ended()), wrong.load());
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace attendant::testing

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s HOST:PORT REQUESTS THREADS\n", argv[0]);
    return 2;
  }
  return attendant::testing::Main(argv[1], std::atoll(argv[2]),
                                  std::atoi(argv[3]));
}
