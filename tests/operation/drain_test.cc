// Restarts of three servers, one after the other, under 200 requests a second:
// no call fails. Once by the client's own balancing, once behind HAProxy.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/integration/http_get.h"
#include "tests/integration/server_process.h"
#include "tests/operation/measured_load.h"
#include "tests/operation/operation_process.h"
#include "tests/operation/record.h"
#include "tests/operation/server_hosts.h"
#include "tests/operation/steady_traffic.h"

namespace attendant::testing {
namespace {

using std::chrono::milliseconds;

// What never comes is a failure, not a test that hangs.
template <typename Condition>
void WaitFor(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
  while (!condition()) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::sleep_for(milliseconds(2));
  }
}

// A server that can be stopped and started again at its addresses.
class RestartingServer {
 public:
  RestartingServer(const ServerHosts& hosts, int host, int lame_duck_seconds)
      : setting_(AttendantServer(hosts.Command(host))),
        flags_({"--backend=cpu", "--cpu_threads=1", "--host_pool_bytes=64M",
                "--lame_duck_seconds=" + std::to_string(lame_duck_seconds)}) {
    flags_.push_back("--listen=" + hosts.address(host) + ":0");
    flags_.push_back("--http=" + hosts.address(host) + ":0");
    Start();
    if (process_->grpc_address().empty()) return;
    flags_.push_back("--listen=" + process_->grpc_address());
    flags_.push_back("--http=" + process_->http_address());
  }

  void Start() { process_ = std::make_unique<ServerProcess>(flags_, setting_); }
  ServerProcess& process() { return *process_; }
  double Answered() const {
    return SampleOf(process_->Metrics(),
                    "attendant_requests_finished_total{method=\"Attend\","
                    "code=\"OK\"}");
  }

 private:
  const ProcessSetting setting_;
  std::vector<std::string> flags_;
  std::unique_ptr<ServerProcess> process_;
};

// HAProxy before the servers; it takes those out whose /readyz says no.
class Proxy {
 public:
  explicit Proxy(std::vector<std::unique_ptr<RestartingServer>>& servers)
      : path_(std::filesystem::temp_directory_path() /
              ("attendant-haproxy-" + std::to_string(::getpid()))) {
    socket_ = path_.string() + ".sock";
    std::ofstream file(path_);
    file << "defaults\n mode http\n timeout connect 2s\n timeout client 60s\n"
            " timeout server 60s\n option httpchk GET /readyz\n"
            " option redispatch 1\n retries 3\n"
            " retry-on conn-failure empty-response 503\n"
            "frontend front\n bind unix@"
         << socket_ << " proto h2\n default_backend servers\nbackend servers\n";
    for (auto& server : servers) {
      const std::string& http = server->process().http_address();
      file << " server s" << &server - servers.data() << " "
           << server->process().grpc_address()
           << " proto h2 check check-proto h1 addr "
           << http.substr(0, http.rfind(':')) << " port "
           << http.substr(http.rfind(':') + 1)
           << " inter 100ms fall 1 rise 1\n";
    }
    file.close();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execlp("haproxy", "haproxy", "-f", path_.c_str(), "-db", "-q", nullptr);
      ::_exit(127);
    }
    WaitFor([&] {
      return std::filesystem::exists(socket_) ||
             ::waitpid(pid_, nullptr, WNOHANG) != 0;
    });
  }
  ~Proxy() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    std::filesystem::remove(path_);
    std::filesystem::remove(socket_);
  }
  std::string target() const { return "unix:" + socket_; }

 private:
  const std::filesystem::path path_;
  std::string socket_;
  pid_t pid_ = -1;
};

bool HaveProxy() { return std::system("haproxy -v >/dev/null 2>&1") == 0; }

class DrainTest : public ::testing::Test {
 protected:
  void StartServers(int lame_duck_seconds) {
    for (int host = 0; host < ServerHosts::kCount; ++host) {
      servers_.push_back(
          std::make_unique<RestartingServer>(hosts_, host, lame_duck_seconds));
      ASSERT_NE(servers_.back()->process().grpc_address(), "");
    }
  }

  // Each of `count` servers goes and comes back, and has served again, before
  // the next goes.
  void Roll(SteadyTraffic* traffic, int count) {
    for (int s = 0; s < count; ++s) {
      servers_[s]->process().Signal(SIGTERM);
      EXPECT_EQ(servers_[s]->process().Wait(), 0);
      traffic->WaitForCalls(20);
      servers_[s]->Start();
      ASSERT_NE(servers_[s]->process().grpc_address(), "");
      WaitFor([&] { return servers_[s]->Answered() > 0; });
      ++restarts_;
    }
  }

  void Check(const std::string& section, SteadyTraffic* traffic) {
    const SteadyTraffic::Outcome& outcome = traffic->Stop();
    EXPECT_GT(outcome.answered, 0);
    EXPECT_EQ(outcome.failed, 0) << outcome.first_error;
    EXPECT_EQ(outcome.wrong, 0);
    Record record("drain", section);
    record.Set("hosts", hosts_.kind());
    record.Set("servers", ServerHosts::kCount);
    record.Set("restarts", restarts_);
    record.Set("requests_per_second", 200);
    record.Set("answered", outcome.answered);
    record.Set("retries", outcome.retries);
    record.Set("p50_ms", Milliseconds(outcome.latency.Quantile(0.5)));
    record.Set("p99_ms", Milliseconds(outcome.latency.Quantile(0.99)));
    record.Set("most_ms", Milliseconds(outcome.latency.max()));
    record.AtMost("failed", static_cast<double>(outcome.failed), 0);
    record.AtMost("wrong", static_cast<double>(outcome.wrong), 0);
  }

  ServerHosts hosts_{IsRecording()};
  std::vector<std::unique_ptr<RestartingServer>> servers_;
  int restarts_ = 0;
};

TEST_F(DrainTest, RollingRestartsBehindTheClientsOwnBalancingLoseNothing) {
  StartServers(IsRecording() ? 1 : 0);
  SteadyTraffic::Options options;
  options.target = "ipv4:";
  for (auto& server : servers_) {
    options.target += (options.target.back() == ':' ? "" : ",") +
                      server->process().grpc_address();
  }
  options.client.balance = true;
  SteadyTraffic traffic(options);
  for (auto& server : servers_) {
    WaitFor([&] { return server->Answered() > 0; });
  }
  for (int round = 0; round < (IsRecording() ? 3 : 1); ++round) {
    Roll(&traffic, ServerHosts::kCount);
  }
  Check("client-side balancing", &traffic);
}

TEST_F(DrainTest, RollingRestartsBehindHaproxyLoseNothing) {
  if (!HaveProxy()) GTEST_SKIP() << "there is no haproxy here";
  StartServers(1);
  Proxy proxy(servers_);
  SteadyTraffic::Options options;
  options.target = proxy.target();
  SteadyTraffic traffic(options);
  for (auto& server : servers_) {
    WaitFor([&] { return server->Answered() > 0; });
  }
  for (int round = 0; round < (IsRecording() ? 3 : 1); ++round) {
    Roll(&traffic, IsRecording() ? ServerHosts::kCount : 1);
  }
  Check("behind HAProxy", &traffic);
}

}  // namespace
}  // namespace attendant::testing
