#include "server/server_process.h"

#include <malloc.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/attention_server.h"
#include "server/connections/accept_guard.h"
#include "server/connections/event_pollers.h"
#include "server/log/grpc_log.h"
#include "server/log/log.h"
#include "server/log/log_writer.h"
#include "server/options/server_options.h"
#include "server/selftest/selftest.h"
#include "server/server_info.h"
#include "server/warm_up.h"

namespace attendant::server {
namespace {

enum ExitCode {
  kDrained = 0,  // nothing lost
  kCannotStart = 1,
  kBadFlags = 2,
  kUnhealthy = 3,  // the device failed: restart me
  kCutOff = 4,     // calls were left when the drain's time was over
  kUnfit = 5,      // a check of --selftest failed
};

// With fewer, who looks takes the core from who computes.
constexpr unsigned kCoresForBusyPoll = 8;

sigset_t AwaitedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGHUP);
  return signals;
}

// What is logged goes to stderr by a thread of its own, for the rest of the
// process; flushed when this goes.
class ProcessLog {
 public:
  explicit ProcessLog(const ServerOptions& options)
      : writer_(new LogWriter(STDERR_FILENO,
                              static_cast<size_t>(options.log_buffer_bytes))) {
    SetLogLevel(options.log_level);
    SetLogSink([to = writer_](const std::string& line) { to->Append(line); });
    writer_->FlushOnFatalSignals();
    TakeGrpcLog();
  }
  ~ProcessLog() { Flush(); }

  void Flush() { writer_->Flush(LogWriter::kLastPatience); }

 private:
  // Never destroyed: other threads log until the process ends.
  LogWriter* const writer_;
};

// The signal that came within `milliseconds`, or 0.
int WaitForSignal(const sigset_t& signals, int64_t milliseconds) {
  timespec time{};
  time.tv_sec = static_cast<time_t>(milliseconds / 1000);
  time.tv_nsec = static_cast<long>(milliseconds % 1000 * 1'000'000);
  return std::max(sigtimedwait(&signals, nullptr, &time), 0);
}

void PrintStart(const ServerOptions& options, AttentionServer& server) {
  const DeviceDescription& device = server.engine().device();
  std::string grpc;
  for (const std::string& address : server.grpc_addresses()) {
    grpc += (grpc.empty() ? "" : ",") + address;
    if (!IsLoopback(address) && !options.tls.enabled()) {
      Log(LogLevel::kWarning,
          "plaintext beyond this machine: anyone who reaches the address can "
          "read and send tensors",
          {{"address", address}});
    }
  }
  const std::string http =
      server.http_address().empty() ? "none" : server.http_address();
  if (http != "none" && !IsLoopback(http)) {
    Log(LogLevel::kWarning,
        "plaintext HTTP beyond this machine: anyone who reaches the address "
        "can read metrics, flags and errors",
        {{"address", http}});
  }
  std::printf(
      "attendant-server %s ready: grpc=%s http=%s backend=%s device=\"%s\" "
      "host memory bound %.1f GiB (pool %.1f + regions %.1f + %lld uploads x "
      "%.2f)\n",
      ServerVersion().c_str(), grpc.c_str(), http.c_str(),
      device.is_cuda ? "cuda" : "cpu", device.name.c_str(),
      static_cast<double>(options.HostMemoryBound()) / (1 << 30),
      static_cast<double>(options.engine.host_pool_bytes) / (1 << 30),
      static_cast<double>(options.RegionMemoryBound()) / (1 << 30),
      static_cast<long long>(options.max_uploads),
      static_cast<double>(options.MessageMemoryBound()) /
          static_cast<double>(options.max_uploads) / (1 << 30));
  std::fflush(stdout);
}

void ReloadPolicy(AttentionServer& server) {
  if (absl::Status status = server.ReloadPolicy(); status.ok()) {
    Log(LogLevel::kInfo, "SIGHUP: the policy is read again");
  } else {
    Log(LogLevel::kError, "SIGHUP: the policy stays as it was",
        {{"error", std::string(status.message())}});
  }
}

// Serves until a stop signal or an unhealthy device, then drains.
ExitCode ServeUntilStopped(const ServerOptions& options,
                           const sigset_t& signals, AttentionServer& server) {
  constexpr int64_t kHealthPeriodMs = 200;
  bool healthy = true;
  int64_t begun = 0;
  int idle_periods = 0;
  for (int signal = 0; healthy && (signal == 0 || signal == SIGHUP);
       signal = WaitForSignal(signals, kHealthPeriodMs)) {
    if (signal == SIGHUP) ReloadPolicy(server);
    healthy = server.CheckHealth();
    const bool idle = server.Begun() == begun && server.Open() == 0;
    idle_periods = idle ? idle_periods + 1 : 0;
    begun = server.Begun();
    // gRPC's buffers of a burst would stay in the allocator's arenas for good.
    if (idle_periods == 2) malloc_trim(0);
  }
  Log(healthy ? LogLevel::kInfo : LogLevel::kError,
      healthy ? "stop signal: not ready, draining" : "unhealthy: draining",
      {{"reason", server.engine().Snapshot().unhealthy_reason}});
  if (healthy) {
    server.StopBeingReady();
    if (options.lame_duck_seconds > 0) {
      WaitForSignal(signals, options.lame_duck_seconds * 1000);
    }
  }
  const bool all =
      server.Drain(Clock::now() + std::chrono::seconds(options.drain_seconds));
  Log(all ? LogLevel::kInfo : LogLevel::kError,
      all ? "drained, nothing lost" : "drain time over, calls were cut off",
      {{"answered", server.Answered()}});
  if (!healthy) return kUnhealthy;
  return all ? kDrained : kCutOff;
}

// Before the first thread: what gRPC needs of the process.
void TuneForGrpc() {
  // Debian's Abseil looks for cycles in the order of locks at every lock that
  // gRPC takes: an eighth of a small call's instructions.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Freed buffers stay for the next message, and no large one is mapped apart:
  // faulting pages in again takes longer than the copy of their bytes. All in
  // one arena, whichever thread reads: of others malloc_trim, which an idle
  // server calls, leaves the end.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
  // Reads into slices of up to 4 MiB instead of 64 KiB; a caller's own setting
  // wins.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);
}

ExitCode Run(const std::vector<std::string>& arguments,
             const EngineFactory& make_engine) {
  const absl::StatusOr<CommandLine> line = ParseCommandLine(arguments);
  if (!line.ok()) {
    std::fprintf(stderr, "attendant-server: %s\n",
                 std::string(line.status().message()).c_str());
    return kBadFlags;
  }
  if (line->help || line->version) {
    std::fputs(
        line->help ? HelpText().c_str() : (ServerVersion() + "\n").c_str(),
        stdout);
    return kDrained;
  }
  // Blocked before any thread starts, so that only this one takes them.
  const sigset_t signals = AwaitedSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  const ServerOptions& options = line->options;
  ProcessLog log(options);
  GuardAccept();
  if (line->selftest) {
    // The table is for people; the log only tells of what goes wrong.
    SetLogLevel(std::max(options.log_level, LogLevel::kWarning));
    return RunSelftest(options, stdout) ? kDrained : kUnfit;
  }
  auto engine = make_engine(options.engine);
  if (!engine.ok()) {
    Log(LogLevel::kError, "cannot start the engine",
        {{"error", engine.status().ToString()}});
    return kCannotStart;
  }
  if (absl::Status status = WarmUp(**engine, options.bounds); !status.ok()) {
    Log(LogLevel::kError, "cannot start: the engine computes wrong answers",
        {{"error", status.ToString()}});
    return kCannotStart;
  }
  auto server = AttentionServer::Start(options, std::move(engine).value());
  if (!server.ok()) {
    Log(LogLevel::kError, "cannot start the server",
        {{"error", server.status().ToString()}});
    return kCannotStart;
  }
  if (std::thread::hardware_concurrency() >= kCoresForBusyPoll) {
    // The server lives as long as the process.
    GiveTurnsToPollers(std::chrono::microseconds(options.busy_poll_us),
                       [&server] { return (*server)->Uploads() > 1; });
  }
  PrintStart(options, **server);
  const ExitCode code = ServeUntilStopped(options, signals, **server);
  // gRPC's own shutdown answers calls that arrive meanwhile with CANCELLED,
  // which callers do not repeat. A closed socket is UNAVAILABLE, which they do.
  std::fflush(stdout);
  log.Flush();
  std::_Exit(code);
}

}  // namespace

int RunServerProcess(const std::vector<std::string>& arguments,
                     const EngineFactory& make_engine) {
  TuneForGrpc();
  return Run(arguments, make_engine);
}

}  // namespace attendant::server
