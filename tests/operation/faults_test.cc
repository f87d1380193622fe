// Faults of the machine and of the device, with traffic that must not notice.
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/integration/http_get.h"
#include "tests/integration/real_server.h"
#include "tests/operation/fault_fixture.h"

namespace attendant::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

class FaultsTest : public FaultTest {};

std::string Both(const ServerProcess& a, const ServerProcess& b) {
  return "ipv4:" + a.grpc_address() + "," + b.grpc_address();
}

grpc::Status AttendOnce(const std::string& address,
                        const v1::AttendRequest& request) {
  const auto stub = ConnectTo(address);
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + seconds(20));
  v1::AttendResponse reply;
  return stub->Attend(&context, request, &reply);
}

TEST_F(FaultsTest, KilledInMidRequest) {
  const std::string socket = folder_ / "socket";
  // Seconds for the request: what is under way is in mid-request for certain.
  auto killed = std::make_unique<ServerProcess>(
      std::vector<std::string>{"--host_pool_bytes=64M",
                               "--listen=127.0.0.1:0,unix:" + socket},
      PacedServer(LoadFlops(8, 512) / 5));
  ASSERT_NE(killed->grpc_address(), "");
  const std::string listen = killed->grpc_address();
  const std::string address = listen.substr(0, listen.find(','));
  grpc::Status status;
  std::jthread caller(
      [&] { status = AttendOnce(address, LoadRequest(8, 512)); });
  ASSERT_TRUE(ComesTrue([&] {
    return SampleOf(killed->Metrics(),
                    "attendant_requests_in_flight{method=\"Attend\"}") == 1;
  }));
  const auto begin = steady_clock::now();
  killed->Signal(SIGKILL);
  caller.join();
  const auto noticed = steady_clock::now() - begin;
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(killed->Wait(), 128 + SIGKILL);
  // The socket file is still there, and the next start takes it over.
  EXPECT_TRUE(std::filesystem::exists(socket));
  const ServerProcess next(Flags({"--listen=" + listen}));
  ASSERT_EQ(next.grpc_address(), listen) << next.Log();
  for (const std::string& target : {address, "unix:" + socket}) {
    const grpc::Status again = AttendOnce(target, LoadRequest(1, 64));
    EXPECT_TRUE(again.ok()) << target << again.error_message();
  }
  Record record("faults", "kill -9 in mid-request");
  record.Set("outcome",
             "the call in the killed server ends with UNAVAILABLE, which "
             "clients repeat; the next start takes port and socket file over");
  record.AtMost("noticed_after_ms", Milliseconds(noticed), 1000);
}

TEST_F(FaultsTest, KilledAmongSeveral) {
  auto killed = std::make_unique<ServerProcess>(Flags());
  const ServerProcess other(Flags());
  ASSERT_NE(killed->grpc_address(), "");
  ASSERT_NE(other.grpc_address(), "");
  auto options = TrafficTo(Both(*killed, other));
  options.client.balance = true;
  SteadyTraffic traffic(options);
  traffic.WaitForCalls(50);
  const std::string address = killed->grpc_address();
  killed->Signal(SIGKILL);
  killed->Wait();
  traffic.WaitForCalls(Calls());
  killed = std::make_unique<ServerProcess>(Flags({"--listen=" + address}));
  traffic.WaitForCalls(Calls());
  Record record("faults", "kill -9 of one of two servers");
  Untouched("killed", "callers with retries notice nothing", &traffic, &record);
}

TEST_F(FaultsTest, NoSpaceForLogs) {
  ProcessSetting setting;
  setting.stderr_path = "/dev/full";  // every write: no space left on device
  const ServerProcess server(Flags({"--log_level=debug"}), setting);
  ASSERT_NE(server.grpc_address(), "");
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  traffic.WaitForCalls(Calls());
  Record record("faults", "no space left for logs");
  Untouched("no space", "lines are lost, nothing else", &traffic, &record);
}

// A pipe that takes no more bytes.
class FullPipe {
 public:
  explicit FullPipe(const std::string& path) {
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
    fd_ = ::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    const std::string line(4095, '.');
    while (::write(fd_, (line + "\n").c_str(), 4096) > 0) {
    }
  }
  ~FullPipe() { ::close(fd_); }

 private:
  int fd_ = -1;
};

TEST_F(FaultsTest, NobodyReadsTheLog) {
  ProcessSetting setting;
  setting.stderr_path = folder_ / "pipe";
  const FullPipe pipe(setting.stderr_path);
  ServerProcess server(Flags({"--log_level=debug", "--log_buffer_bytes=16K"}),
                       setting);
  ASSERT_NE(server.grpc_address(), "");
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  const auto lost = [&] {
    return SampleOf(server.Metrics(),
                    "attendant_log_lines_lost_total{reason=\"slow\"}");
  };
  EXPECT_TRUE(ComesTrue([&] { return lost() > 0; }));
  traffic.WaitForCalls(traffic.ended() + Calls());
  Record record("faults", "nobody reads the log's pipe");
  record.Set("lines_lost", lost());
  Untouched("unread log", "lines are lost and counted, nothing else waits",
            &traffic, &record);
  // Nor does an end wait.
  ServerProcess another(Flags(), setting);
  another.Signal(SIGTERM);
  EXPECT_EQ(another.Wait(), 0);
  // Who reads again is told.
  std::ifstream reader(setting.stderr_path);
  bool told = false;
  for (std::string line; !told && std::getline(reader, line);) {
    told = line.find("log lines were lost") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

// A certificate for localhost that signs itself, and its key.
bool MakeCertificate(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::string command =
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 "
      "-nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
      "-keyout " +
      (folder / "key.pem").string() + " -out " +
      (folder / "cert.pem").string() + " 2>/dev/null";
  return std::system(command.c_str()) == 0;
}

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_F(FaultsTest, CertificateSwapped) {
  const auto live = folder_ / "live";
  if (!MakeCertificate(live) || !MakeCertificate(folder_ / "new")) {
    GTEST_SKIP() << "there is no openssl here";
  }
  const std::string before = TextOf(live / "cert.pem");
  const std::string after = TextOf(folder_ / "new/cert.pem");
  const ServerProcess server(Flags(
      {"--tls_cert=" + (live / "cert.pem").string(),
       "--tls_key=" + (live / "key.pem").string(), "--tls_refresh_seconds=1"}));
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  auto options = TrafficTo(server.grpc_address());
  options.client.tls = true;
  options.client.server_name = "localhost";
  options.client.root_certificates = before + after;
  SteadyTraffic traffic(options);
  traffic.WaitForCalls(50);
  for (const char* file : {"key.pem", "cert.pem"}) {
    std::filesystem::rename(folder_ / "new" / file, live / file);
  }
  const auto begin = steady_clock::now();
  // New connections are proven by the new certificate, and by it alone.
  const auto trusts = [&](const std::string& root) {
    client::ClientOptions one = options.client;
    one.root_certificates = root;
    one.retry.max_attempts = 1;
    const auto client = client::Client::Create(options.target, one);
    std::this_thread::sleep_for(milliseconds(50));
    return client.ok() && client->GetServerInfo(seconds(5)).ok();
  };
  EXPECT_TRUE(ComesTrue([&] { return trusts(after); }));
  const auto seen = steady_clock::now() - begin;
  EXPECT_FALSE(trusts(before));
  traffic.WaitForCalls(Calls());
  Record record("faults", "certificate swapped");
  record.AtMost("new_certificate_after_ms", Milliseconds(seen), 5000);
  Untouched("certificate",
            "new connections get the new certificate, old ones live on",
            &traffic, &record);
}

TEST_F(FaultsTest, ClockSetForwardsAndBack) {
  const std::string path = folder_ / "offset";
  const auto set = [&](int64_t offset_seconds) {
    const int64_t nanoseconds = offset_seconds * 1'000'000'000;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.write(reinterpret_cast<const char*>(&nanoseconds),
               sizeof(nanoseconds));
  };
  std::ofstream(path) << std::string(sizeof(int64_t), '\0');
  ProcessSetting setting;
  setting.environment = {"LD_PRELOAD=" ATTENDANT_CLOCK_JUMP,
                         "ATTENDANT_CLOCK_OFFSET=" + path};
  const ServerProcess server(Flags({"--log_level=debug"}), setting);
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  for (const int64_t jump : {3600, -3600, 0}) {
    traffic.WaitForCalls(50);
    set(jump);
    traffic.WaitForCalls(Calls() / 2);
  }
  // A call behind a clock that was set still ends when it should.
  Record record("faults", "wall clock set an hour forwards, back two, right");
  record.Set("clock",
             "clock_gettime of the server process, by a preloaded "
             "library; waits stay real");
  Untouched("clock", "deadlines and ages go by the steady clock", &traffic,
            &record);
}

TEST_F(FaultsTest, OneLaunchFails) {
  const ServerProcess server({"--host_pool_bytes=64M"}, FaultyServer());
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  auto options = TrafficTo(server.grpc_address());
  options.callers = 1;  // a launch is one request's
  SteadyTraffic traffic(options);
  traffic.WaitForCalls(50);
  server.Signal(SIGUSR1);
  traffic.WaitForCalls(Calls());
  const double internal =
      SampleOf(server.Metrics(),
               "attendant_requests_finished_total{method=\"Attend\",code="
               "\"INTERNAL\"}");
  EXPECT_EQ(internal, 1);
  Record record("faults", "one launch fails on the device");
  Untouched("launch", "its request ends with INTERNAL, the next are answered",
            &traffic, &record, 1);
  EXPECT_EQ(traffic.Stop().first_error.code(), absl::StatusCode::kInternal);
}

TEST_F(FaultsTest, DeviceBreaksForGood) {
  ServerProcess broken({"--host_pool_bytes=64M", "--lame_duck_seconds=0"},
                       FaultyServer());
  const ServerProcess other(Flags());
  ASSERT_NE(broken.grpc_address(), "") << broken.Log();
  auto options = TrafficTo(Both(broken, other));
  options.client.balance = true;
  SteadyTraffic traffic(options);
  traffic.WaitForCalls(50);
  const auto begin = steady_clock::now();
  broken.Signal(SIGUSR2);
  const auto ready = [&] {
    return HttpAsk(broken.http_address(), "GET /readyz").find(" 200 ") !=
           std::string::npos;
  };
  EXPECT_TRUE(ComesTrue([&] { return !ready(); }));
  const auto not_ready = steady_clock::now() - begin;
  EXPECT_EQ(broken.Wait(), 3);
  const auto gone = steady_clock::now() - begin;
  traffic.WaitForCalls(Calls());
  Record record("faults", "the device breaks for good (sticky error)");
  record.AtMost("not_ready_after_ms", Milliseconds(not_ready), 1000);
  record.Set("exit_code", 3);
  record.Set("process_ended_after_ms", Milliseconds(gone));
  Untouched("sticky",
            "not ready within a second, exit code 3; callers with retries go "
            "to another server",
            &traffic, &record);
}

}  // namespace
}  // namespace attendant::testing
