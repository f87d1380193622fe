// What no server of this kind can be faster than, on this machine:
//   - an empty unary gRPC call between two processes, over TCP loopback and a
//     unix socket (generated stub, blocking; callback server);
//   - with a GPU: the bytes of a call from pinned memory to the GPU, an empty
//     kernel, the answer's bytes back, wait.
//
//   transport_floors [CALLS [BYTES_UP BYTES_DOWN]]   prints one JSON object
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "attendant/v1/attention.grpc.pb.h"
#ifdef ATTENDANT_WITH_CUDA
#include "tests/benchmark/transport/launch_floor.h"
#endif

namespace attendant::benchmark {
namespace {

class EmptyService : public v1::AttentionService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse*) override {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

// In a process of its own: writes its TCP port to `pipe`, serves until killed.
[[noreturn]] void Serve(const std::string& socket, int pipe) {
  EmptyService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || write(pipe, &port, sizeof(port)) < 0) _exit(1);
  server->Wait();
  _exit(0);
}

struct Quantiles {
  double p50_ms, p99_ms;
};
Quantiles Measure(int calls, const std::function<bool()>& call) {
  std::vector<double> times;
  for (int i = -calls / 10; i < calls; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!call()) std::exit(1);
    const std::chrono::duration<double, std::milli> time =
        std::chrono::steady_clock::now() - begin;
    if (i >= 0) times.push_back(time.count());
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[times.size() * 99 / 100]};
}

Quantiles EmptyCalls(int calls, const std::string& target) {
  const std::unique_ptr<v1::AttentionService::Stub> stub =
      v1::AttentionService::NewStub(
          grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
  return Measure(calls, [&] {
    grpc::ClientContext context;
    v1::GetServerInfoResponse reply;
    return stub->GetServerInfo(&context, {}, &reply).ok();
  });
}

void Print(const char* name, const Quantiles& q, const char* end) {
  std::printf("\"%s\": {\"p50_ms\": %.6f, \"p99_ms\": %.6f}%s", name, q.p50_ms,
              q.p99_ms, end);
}

int Main(int argc, char** argv) {
  const int calls = argc > 1 ? std::max(10, std::atoi(argv[1])) : 2000;
  int pipes[2];
  if (pipe(pipes) != 0) return 1;
  const std::string socket =
      "unix:/tmp/attendant_floor_" + std::to_string(getpid());
  const pid_t child = fork();
  if (child == 0) Serve(socket, pipes[1]);
  int port = 0;
  if (read(pipes[0], &port, sizeof(port)) != sizeof(port)) return 1;
  const Quantiles tcp = EmptyCalls(calls, "127.0.0.1:" + std::to_string(port));
  const Quantiles unix_socket = EmptyCalls(calls, socket);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  unlink(socket.substr(5).c_str());
  std::printf("{");
  Print("empty_call_tcp", tcp, ", ");
#ifdef ATTENDANT_WITH_CUDA
  const size_t up = argc > 2 ? std::atoll(argv[2]) : 384;
  const size_t down = argc > 3 ? std::atoll(argv[3]) : 128;
  LaunchFloor floor(up, down);
  if (floor.ready()) {
    Print("launch_and_copy", Measure(calls, [&] { return floor.Run(); }), ", ");
  }
#endif
  Print("empty_call_unix", unix_socket, "}\n");
  return 0;
}

}  // namespace
}  // namespace attendant::benchmark

int main(int argc, char** argv) {
  // As our server and command do, so that the floor is no slower than need be.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return attendant::benchmark::Main(argc, argv);
}
