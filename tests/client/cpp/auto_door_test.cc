#include "client/cpp/auto_door.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/client/cpp/echo_input.h"
#include "tests/client/cpp/fake_server.h"
#include "tests/client/cpp/silent_region_socket.h"

namespace attendant::client {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

// Says that it shares memory.
class SharingServer final : public FakeServer {
 public:
  explicit SharingServer(std::string socket)
      : FakeServer(EchoQ), socket_(std::move(socket)) {}
  int asked() const { return asked_; }
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override {
    ++asked_;
    response->set_region_socket(socket_);
    return FakeServer::GetServerInfo(context, request, response);
  }

 private:
  const std::string socket_;
  std::atomic<int> asked_ = 0;
};

// The socket's own patience is a minute.
TEST(AutoDoorTest, ASilentRegionSocketDelaysNoCallBeyondItsDeadline) {
  const SilentRegionSocket socket;
  SharingServer server(socket.path());
  const auto door = OpenAutoDoor(server.target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  const Input input;
  const auto begin = steady_clock::now();
  const auto answer = (*door)->Attend(input.args, seconds(10));
  EXPECT_TRUE(answer.ok()) << answer.status();
  EXPECT_LT(steady_clock::now() - begin, seconds(20));
  // The next goes by messages at once.
  const int asked = server.asked();
  EXPECT_GT(asked, 0);
  EXPECT_TRUE((*door)->Attend(input.args, seconds(10)).ok());
  EXPECT_EQ(server.asked(), asked);
}

TEST(AutoDoorTest, CallsAtOnceDoNotWaitForTheFirstOnesDoorForLong) {
  const SilentRegionSocket socket;
  SharingServer server(socket.path());
  const auto door = OpenAutoDoor(server.target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  std::vector<std::jthread> threads;
  std::atomic<int> answered = 0;
  const auto begin = steady_clock::now();
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      const Input input;
      answered += (*door)->Attend(input.args, seconds(10)).ok();
    });
  }
  threads.clear();
  EXPECT_EQ(answered, 4);
  EXPECT_LT(steady_clock::now() - begin, seconds(30));
}

TEST(AutoDoorTest, ATimeoutThatIsNoneIsRefused) {
  FakeServer server(EchoQ);
  const auto door = OpenAutoDoor(server.target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  const Input input;
  EXPECT_TRUE(absl::IsInvalidArgument(
      (*door)->Attend(input.args, seconds(0)).status()));
}

TEST(AutoDoorTest, TheLongestTimeoutIsOne) {
  FakeServer server(EchoQ);
  const auto door = OpenAutoDoor(server.target(), {});
  ASSERT_TRUE(door.ok()) << door.status();
  const Input input;
  const auto answer =
      (*door)->Attend(input.args, std::chrono::nanoseconds::max());
  EXPECT_TRUE(answer.ok()) << answer.status();
}

}  // namespace
}  // namespace attendant::client
