#include "server/connections/accept_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

namespace attendant::server {
namespace {

constexpr int kLimit = 120;

class AcceptGuardTest : public ::testing::Test {
 protected:
  // The limit stays for good, and so does the guard.
  static void SetUpTestSuite() {
    const rlimit limit{kLimit, kLimit};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    GuardAccept();
  }

  AcceptGuardTest() {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address_);
    bind(listener_, reinterpret_cast<sockaddr*>(&address_), length);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address_), &length);
    listen(listener_, kLimit);
    opened_.push_back(listener_);
  }
  ~AcceptGuardTest() override {
    for (const int descriptor : opened_) close(descriptor);
  }

  int Connect() {
    const int client = socket(AF_INET, SOCK_STREAM, 0);
    opened_.push_back(client);
    EXPECT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address_),
                      sizeof(address_)),
              0);
    return client;
  }
  int Accept() {
    const int connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection >= 0) opened_.push_back(connection);
    return connection;
  }
  // What Accept says is "nobody is waiting".
  void ExpectNobodyWaits() {
    EXPECT_EQ(Accept(), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  static bool IsClosed(int client) {
    char byte;
    return recv(client, &byte, 1, 0) <= 0;
  }

  int listener_ = -1;
  sockaddr_in address_{};
  std::vector<int> opened_;
};

TEST_F(AcceptGuardTest, TakesConnectionsWhileThereIsRoom) {
  const int64_t refused = RefusedConnections();
  Connect();
  EXPECT_GE(Accept(), 0);
  ExpectNobodyWaits();
  EXPECT_EQ(RefusedConnections(), refused);
}

TEST_F(AcceptGuardTest, ClosesWhatWouldTakeTheKeptDescriptors) {
  const int64_t refused = RefusedConnections();
  const int last = Connect();
  while (opened_.back() < kLimit - kKeptDescriptors - 1) {
    opened_.push_back(dup(listener_));
  }
  ExpectNobodyWaits();
  EXPECT_EQ(RefusedConnections(), refused + 1);
  EXPECT_TRUE(IsClosed(last));
}

TEST_F(AcceptGuardTest, ClosesWhatComesWhenNothingIsLeft) {
  const int64_t refused = RefusedConnections();
  const int first = Connect();
  const int second = Connect();
  for (int one; (one = dup(listener_)) >= 0;) opened_.push_back(one);
  ASSERT_EQ(errno, EMFILE);
  ExpectNobodyWaits();
  EXPECT_EQ(RefusedConnections(), refused + 2);
  EXPECT_TRUE(IsClosed(first));
  EXPECT_TRUE(IsClosed(second));
  // There is room again.
  close(opened_.back());
  opened_.pop_back();
  while (opened_.size() > 10) {
    close(opened_.back());
    opened_.pop_back();
  }
  Connect();
  EXPECT_GE(Accept(), 0);
}

}  // namespace
}  // namespace attendant::server
