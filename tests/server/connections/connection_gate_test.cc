#include "server/connections/connection_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/connections/listen_sockets.h"
#include "tests/server/served_engine.h"

namespace attendant::testing {
namespace {

using server::ConnectionGate;
using server::UniqueFd;
using ::testing::HasSubstr;

// That no other run of this test uses.
std::string OwnPath(const std::string& name) {
  return ::testing::TempDir() + name + "_" + std::to_string(getpid());
}

sockaddr_un UnixAddress(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

UniqueFd ConnectUnix(const std::string& path) {
  const sockaddr_un to = UnixAddress(path);
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  return fd;
}

// True if the other end has closed it.
bool IsTurnedAway(const UniqueFd& fd) {
  char byte;
  return recv(fd.get(), &byte, 1, 0) <= 0;
}

class ConnectionGateTest : public ::testing::Test {
 protected:
  const std::string path_ = OwnPath("gate");

  // What is handed over is kept open.
  std::unique_ptr<ConnectionGate> Start(int64_t all, int64_t per_peer) {
    ConnectionGate::Door door;
    door.sockets = *server::Listen("unix:" + path_);
    door.hand_over = [this](UniqueFd fd) {
      EXPECT_EQ(send(fd.get(), "x", 1, 0), 1);
      kept_.push_back(std::move(fd));
    };
    std::vector<ConnectionGate::Door> doors;
    doors.push_back(std::move(door));
    return ConnectionGate::Start({all, per_peer}, std::move(doors));
  }

  std::vector<UniqueFd> kept_;  // of the gate's thread
};

TEST_F(ConnectionGateTest, OneTooManyIsTurnedAwayUntilAnotherIsGone) {
  const auto gate = Start(/*all=*/2, /*per_peer=*/0);
  const UniqueFd first = ConnectUnix(path_), second = ConnectUnix(path_);
  EXPECT_FALSE(IsTurnedAway(first));
  EXPECT_FALSE(IsTurnedAway(second));
  EXPECT_TRUE(IsTurnedAway(ConnectUnix(path_)));
  EXPECT_EQ(gate->Counts().open, 2);
  EXPECT_EQ(gate->Counts().refused, 1);
  kept_.pop_back();  // as gRPC closes one
  EXPECT_FALSE(IsTurnedAway(ConnectUnix(path_)));
  EXPECT_EQ(gate->Counts().open, 2);
}

TEST_F(ConnectionGateTest, APeerHasABoundOfItsOwn) {
  const auto gate = Start(/*all=*/0, /*per_peer=*/1);
  const UniqueFd first = ConnectUnix(path_);
  EXPECT_FALSE(IsTurnedAway(first));
  EXPECT_TRUE(IsTurnedAway(ConnectUnix(path_)));
  EXPECT_EQ(gate->Counts().refused_peer, 1);
}

TEST(ListenSockets, AStaleUnixSocketIsReplacedAndALiveOneIsNot) {
  const std::string path = OwnPath("stale");
  {
    // As kill -9 leaves it.
    const sockaddr_un at = UnixAddress(path);
    const UniqueFd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    unlink(path.c_str());
    ASSERT_EQ(
        bind(dead.get(), reinterpret_cast<const sockaddr*>(&at), sizeof(at)),
        0);
  }
  const auto live = server::Listen("unix:" + path);
  ASSERT_TRUE(live.ok()) << live.status();
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  EXPECT_THAT(std::string(server::Listen("unix:" + path).status().message()),
              HasSubstr("another server answers"));
}

TEST(ListenSockets, AFileThatIsNoSocketStays) {
  const std::string path = OwnPath("no_socket");
  std::ofstream(path) << "precious";
  EXPECT_FALSE(server::Listen("unix:" + path).ok());
  std::string text;
  std::ifstream(path) >> text;
  EXPECT_EQ(text, "precious");
  unlink(path.c_str());
}

TEST(ListenSockets, ABoundPortIsAnError) {
  const auto first = server::Listen("127.0.0.1:0");
  ASSERT_TRUE(first.ok());
  EXPECT_THAT((*first)[0].address, HasSubstr("127.0.0.1:"));
  EXPECT_THAT(
      std::string(server::Listen((*first)[0].address).status().message()),
      HasSubstr("cannot be bound"));
}

// With gRPC behind it, over TCP.
TEST(GatedServer, ServesWithinItsBoundsAndTurnsAwayTheRest) {
  server::ServerOptions options = LoopbackOptions();
  options.connections = {.all = 3, .per_peer = 0};
  ServedEngine served(options);  // with a connection to it
  const std::string address = served.server().grpc_addresses()[0];
  const auto ask = [&](const std::shared_ptr<grpc::Channel>& channel) {
    grpc::ClientContext context;
    v1::AttendResponse reply;
    const grpc::Status status = v1::AttentionService::NewStub(channel)->Attend(
        &context, MeanRequest(8, 4), &reply);
    if (status.ok()) ExpectMean(reply, 8, 4);
    return status;
  };
  auto first = Connect(address), second = Connect(address);
  EXPECT_TRUE(ask(first).ok());
  EXPECT_TRUE(ask(second).ok());
  EXPECT_EQ(ask(MakeChannel(address)).error_code(), grpc::UNAVAILABLE);
  EXPECT_TRUE(ask(first).ok());
  EXPECT_EQ(served.Metric("attendant_open_connections"), 3);
  EXPECT_GE(served.Metric("attendant_connections_refused_total{"
                          "bound=\"max_connections\"}"),
            1);
  second.reset();
  const auto end = server::Clock::now() + std::chrono::seconds(60);
  while (served.Metric("attendant_open_connections") > 2) {
    ASSERT_LT(server::Clock::now(), end);
    std::this_thread::yield();
  }
  EXPECT_TRUE(ask(Connect(address)).ok());
}

TEST(GatedServer, AUnixSocketOfALiveServerIsNotTaken) {
  server::ServerOptions options = LoopbackOptions();
  options.listen = "unix:" + OwnPath("gated");
  const ServedEngine served(options);
  const auto second = server::AttentionServer::Start(
      options, std::make_unique<FakeAttentionEngine>());
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another server answers"));
}

}  // namespace
}  // namespace attendant::testing
