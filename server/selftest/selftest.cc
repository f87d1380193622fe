#include "server/selftest/selftest.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/access/caller_access.h"
#include "server/access/transport_security.h"
#include "server/attention_server.h"
#include "server/engine/attention_engine.h"
#include "server/selftest/check_report.h"
#include "server/selftest/direct_call.h"
#include "server/selftest/door_checks.h"
#include "server/selftest/kernel_checks.h"
#include "server/selftest/memory_checks.h"
#include "server/selftest/region_checks.h"
#include "server/server_info.h"
#include "server/warm_up.h"

namespace attendant::server {
namespace {

// A folder of its own for the region socket.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = "/tmp/attendant-selftest-XXXXXX";
    if (mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~TemporaryFolder() {
    unlink(socket().c_str());
    rmdir(path_.c_str());
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string socket() const { return path_ + "/regions"; }

 private:
  std::string path_;
};

// For itself alone: loopback, no files, and every kind of region that one
// process can try.
ServerOptions LoopbackOptions(const ServerOptions& options,
                              const std::string& region_socket) {
  ServerOptions loopback = options;
  loopback.listen = "127.0.0.1:0";
  loopback.http = "127.0.0.1:0";
  loopback.tls = {};
  loopback.policy.clear();
  loopback.regions = {};
  loopback.regions.buffers = true;
  loopback.regions.max_bytes = int64_t{64} << 20;
  loopback.regions.socket = region_socket;
  return loopback;
}

void CheckFiles(const ServerOptions& options, CheckReport* report) {
  if (options.tls.enabled()) {
    report->Run("TLS files", [&]() -> absl::StatusOr<std::string> {
      RETURN_IF_ERROR(MakeTlsCredentials(options.tls).status());
      return "certificate and key belong together";
    });
  }
  if (!options.policy.empty()) {
    report->Run("policy file", [&]() -> absl::StatusOr<std::string> {
      RETURN_IF_ERROR(CallerAccess::Create(options.policy).status());
      return options.policy;
    });
  }
}

std::unique_ptr<AttentionEngine> CheckEngine(const ServerOptions& options,
                                             CheckReport* report) {
  std::unique_ptr<AttentionEngine> engine;
  report->Run("engine", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(engine, CreateEngine(options.engine));
    const DeviceDescription& device = engine->device();
    return device.is_cuda
               ? absl::StrCat("GPU ", device.index, ", ", device.name, ", ",
                              device.uuid, ", compute capability ",
                              device.properties.compute_capability)
               : absl::StrCat("CPU, ", device.properties.num_sms, " threads, ",
                              device.instruction_set);
  });
  return engine;
}

void CheckComputing(const ServerOptions& options, AttentionEngine& engine,
                    CheckReport* report) {
  const Bounds& bounds = options.bounds;
  report->Run("warm-up", [&]() -> absl::StatusOr<std::string> {
    RETURN_IF_ERROR(WarmUp(engine, bounds));
    return "every kernel variant";
  });
  for (const std::string& kernel : KernelsOf(engine)) {
    report->Run("kernel " + kernel,
                [&] { return CheckKernel(engine, bounds, kernel); });
  }
  report->Run("memory pools", [&] { return CheckPools(engine, bounds); });
  report->Run("memory backpressure",
              [&] { return CheckBackpressure(engine, bounds); });
}

absl::StatusOr<DoorProbe> MakeProbe(AttentionEngine& engine,
                                    const Bounds& bounds) {
  DoorProbe probe;
  probe.request = KernelCases(v1::DATA_TYPE_BF16).front().request;
  ASSIGN_OR_RETURN(const DirectAnswer answer,
                   CallEngine(engine, bounds, probe.request));
  probe.output_data = answer.output_data();
  probe.lse_data = answer.lse_data();
  return probe;
}

void CheckDoors(const ServerOptions& options,
                std::unique_ptr<AttentionEngine> engine, CheckReport* report) {
  const TemporaryFolder folder;
  const bool on_gpu = engine->device().is_cuda;
  std::unique_ptr<AttentionServer> server;
  DoorProbe probe;
  report->Run("server", [&]() -> absl::StatusOr<std::string> {
    ASSIGN_OR_RETURN(probe, MakeProbe(*engine, options.bounds));
    ASSIGN_OR_RETURN(server, AttentionServer::Start(
                                 LoopbackOptions(options, folder.socket()),
                                 std::move(engine)));
    return "listens on " + server->grpc_addresses()[0];
  });
  if (server == nullptr) return;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  const std::shared_ptr<grpc::Channel> channel =
      grpc::CreateCustomChannel(server->grpc_addresses()[0],
                                grpc::InsecureChannelCredentials(), arguments);
  report->Run("door unary", [&] { return CheckUnary(channel, probe); });
  report->Run("door stream", [&] { return CheckStream(channel, probe); });
  report->Run("door shared memory", [&] {
    return CheckSharedMemory(channel, folder.socket(), probe);
  });
  report->Run("door region, host",
              [&] { return CheckBuffer(channel, false, probe); });
  if (on_gpu) {
    report->Run("door region, device",
                [&] { return CheckBuffer(channel, true, probe); });
  }
  report->Run("refusals", [&] { return CheckRefusal(channel, probe); });
  report->Run("HTTP", [&] { return CheckHttp(server->http_address()); });
  report->Run("drain", [&]() -> absl::StatusOr<std::string> {
    if (server->Drain(Clock::now() + kSelftestPatience)) return "nothing left";
    return absl::InternalError("calls or memory were left behind");
  });
}

}  // namespace

bool RunSelftest(const ServerOptions& options, std::FILE* out) {
  std::fprintf(out, "attendant-server %s selftest (%s)\n",
               ServerVersion().c_str(), ServerBuild().c_str());
  CheckReport report(out);
  CheckFiles(options, &report);
  if (auto engine = CheckEngine(options, &report); engine != nullptr) {
    CheckComputing(options, *engine, &report);
    CheckDoors(options, std::move(engine), &report);
  }
  return report.Finish();
}

}  // namespace attendant::server
