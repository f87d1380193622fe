// Faults of the network and of callers, with traffic that must not notice.
#include <memory>
#include <optional>

#include "tests/integration/http_get.h"
#include "tests/operation/fault_fixture.h"
#include "tests/operation/raw_connection.h"
#include "tests/operation/server_hosts.h"

namespace attendant::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

class NetworkFaultsTest : public FaultTest {};

TEST_F(NetworkFaultsTest, DescriptorsRunOut) {
  constexpr int kDescriptors = 100;
  ProcessSetting setting;
  setting.most_descriptors = kDescriptors;
  const ServerProcess server(Flags(), setting);
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  traffic.WaitForCalls(50);
  const int64_t usual = server.OpenDescriptors();
  std::optional<std::vector<RawConnection>> crowd(std::in_place);
  for (int i = 0; i < 2 * kDescriptors; ++i) {
    crowd->emplace_back(server.grpc_address());
    EXPECT_TRUE(crowd->back().connected());
  }
  traffic.WaitForCalls(Calls());
  // Who watches over the server still gets in.
  EXPECT_NE(HttpAsk(server.http_address(), "GET /healthz").find(" 200 "),
            std::string::npos);
  const int64_t most = server.OpenDescriptors();
  EXPECT_LT(most, kDescriptors);
  crowd.reset();
  EXPECT_TRUE(ComesTrue([&] { return server.OpenDescriptors() <= usual + 2; }));
  // Who comes now is served.
  SteadyTraffic later(TrafficTo(server.grpc_address()));
  later.WaitForCalls(20);
  EXPECT_EQ(later.Stop().failed, 0) << later.Stop().first_error;
  Record record("faults", "descriptors run out");
  record.Set("limit", kDescriptors);
  record.Set("connections_opened", 2 * kDescriptors);
  record.Set("most_open", most);
  record.Set("new_callers_failed_afterwards", later.Stop().failed);
  Untouched("descriptors",
            "connected callers are served, new ones when there is room again",
            &traffic, &record);
}

TEST_F(NetworkFaultsTest, HalfOpenedAndSilent) {
  const ServerProcess server(Flags());
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  traffic.WaitForCalls(50);
  const int64_t usual = server.OpenDescriptors();
  std::vector<RawConnection> silent;
  const std::string start = Http2Start();
  for (size_t i = 0; i < 90; ++i) {
    silent.emplace_back(server.grpc_address());
    // A third says nothing, a third ends in its first line, a third in a call.
    if (i % 3 == 1) silent.back().Send(start.substr(0, i % start.size()));
    if (i % 3 == 2) {
      const std::string call =
          start + GrpcHeaders(1, "/attendant.v1.AttentionService/Attend");
      silent.back().Send(call.substr(0, call.size() - i % 40));
    }
  }
  traffic.WaitForCalls(Calls());
  const int64_t most = server.OpenDescriptors();
  silent.clear();
  EXPECT_TRUE(ComesTrue([&] { return server.OpenDescriptors() <= usual + 2; }));
  Record record("faults", "half-open connections");
  record.Set("connections", 90);
  record.Set("most_open_descriptors", most);
  Untouched("half-open", "they wait in vain and cost a descriptor each",
            &traffic, &record);
}

TEST_F(NetworkFaultsTest, PeersThatVanish) {
  ServerHosts hosts(IsRecording());
  if (!hosts.namespaces()) {
    GTEST_SKIP() << "cables are cut in the long form, by root, alone";
  }
  const std::string socket = folder_ / "socket";
  const ServerProcess server(
      Flags({"--listen=" + hosts.address(0) + ":0,unix:" + socket,
             "--keepalive_seconds=1", "--keepalive_timeout_seconds=1"}),
      AttendantServer(hosts.Command(0)));
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  const std::string far =
      server.grpc_address().substr(0, server.grpc_address().find(','));
  SteadyTraffic traffic(TrafficTo("unix:" + socket));
  traffic.WaitForCalls(50);
  const int64_t usual = server.OpenDescriptors();
  std::vector<std::unique_ptr<SteadyTraffic>> vanished;
  for (int i = 0; i < 20; ++i) {
    auto options = TrafficTo(far);
    options.rate = 5;
    options.callers = 1;
    options.deadline = milliseconds(2000);
    vanished.push_back(std::make_unique<SteadyTraffic>(options));
  }
  for (auto& one : vanished) one->WaitForCalls(2);
  EXPECT_GE(server.OpenDescriptors(), usual + 20);
  hosts.CutCable(0);
  const auto begin = steady_clock::now();
  EXPECT_TRUE(ComesTrue([&] { return server.OpenDescriptors() <= usual + 2; }));
  const auto closed = steady_clock::now() - begin;
  traffic.WaitForCalls(Calls());
  for (auto& one : vanished) one->Stop();
  Record record("faults", "peers vanish without a word");
  record.Set("peers", 20);
  record.Set("hosts", hosts.kind());
  record.AtMost("closed_after_ms", Milliseconds(closed), 10'000);
  Untouched("vanish", "keepalive closes their connections", &traffic, &record);
}

TEST_F(NetworkFaultsTest, OneByteASecond) {
  // In the quick form ten bytes a second: it ends by its deadline all the same.
  // The others' deadline is the same one: they must not miss it where the
  // machine stands still for a moment.
  const milliseconds pause(IsRecording() ? 1000 : 100);
  const int64_t deadline_ms = 5000;
  const ServerProcess server(
      Flags({"--default_deadline_ms=" + std::to_string(deadline_ms)}));
  ASSERT_NE(server.grpc_address(), "") << server.Log();
  SteadyTraffic traffic(TrafficTo(server.grpc_address()));
  traffic.WaitForCalls(50);
  constexpr int kSlow = 20;
  std::vector<RawConnection> slow;
  for (int i = 0; i < kSlow; ++i) {
    slow.emplace_back(server.grpc_address());
    // A message of a mebibyte begins, in a frame of a thousand bytes.
    slow.back().Send(
        Http2Start() + GrpcHeaders(1, "/attendant.v1.AttentionService/Attend") +
        Http2Frame(kHttp2Data, 0, 1, std::string(1000, '\0')).substr(0, 9) +
        std::string("\0\0\x10\0\0", 5));
  }
  const auto missed = [&] {
    return SampleOf(server.Metrics(),
                    "attendant_deadlines_missed_total{stage=\"receive\"}");
  };
  const auto begin = steady_clock::now();
  ASSERT_TRUE(ComesTrue([&] {
    for (const RawConnection& one : slow) one.Send(std::string(1, '\0'));
    std::this_thread::sleep_for(pause);
    return missed() == kSlow;
  }));
  const auto ended = steady_clock::now() - begin;
  traffic.WaitForCalls(Calls());
  Record record("faults", "one byte a second");
  record.Set("callers", kSlow);
  record.Set("server_default_deadline_ms", deadline_ms);
  record.Set("all_ended_after_ms", Milliseconds(ended));
  record.Set("deadlines_missed_in_receive", missed());
  Untouched("slow", "each call ends at the server's own deadline", &traffic,
            &record);
}

}  // namespace
}  // namespace attendant::testing
