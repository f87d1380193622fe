#include "client/cpp/region_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include "client/cpp/shared_tensors.h"
#include "tests/client/cpp/silent_region_socket.h"

namespace attendant::client {
namespace {

using ::testing::HasSubstr;

TEST(RegionSocketTest, AServerThatStandsStillIsNotWaitedForForEver) {
  SilentRegionSocket server;
  const auto socket = RegionSocket::Connect(server.path(), std::string(32, 'o'),
                                            std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
  EXPECT_THAT(socket.status().message(), HasSubstr("no answer"));
}

TEST(RegionSocketTest, MemoryIsNotSharedBeyondADeadline) {
  SilentRegionSocket server;
  const auto begin = std::chrono::steady_clock::now();
  const auto shared =
      SharedTensors::Create(server.path(), std::string(32, 'o'), 4096,
                            begin + std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(shared.status())) << shared.status();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(RegionSocketTest, PatienceLastsUntilTheDeadline) {
  for (int micros = 1; micros < 5000; micros += 37) {
    const auto now = std::chrono::steady_clock::now();
    const auto deadline = now + std::chrono::microseconds(micros);
    const auto patience = PatienceUntil(deadline);
    EXPECT_GE(std::chrono::steady_clock::now() + patience, deadline);
  }
  EXPECT_EQ(PatienceUntil(std::chrono::steady_clock::time_point::max()),
            std::chrono::minutes(1));
}

// Answers once the asker's thread has been interrupted, and numbers its
// answers.
void AnswerInterrupted(int listener, pthread_t asker, int requests) {
  const int connection = accept(listener, nullptr, nullptr);
  char request[4096];
  for (int n = 0; n <= requests; ++n) {
    EXPECT_GT(recv(connection, request, sizeof(request), 0), 0);
    v1::RegionDoorReply reply;
    if (n > 0) {
      for (int i = 0; i < 50; ++i) {
        pthread_kill(asker, SIGUSR1);
        std::this_thread::yield();
      }
    }
    reply.mutable_region()->set_name(std::to_string(n));
    const std::string bytes = reply.SerializeAsString();
    EXPECT_GE(send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  close(connection);
}

TEST(RegionSocketTest, SignalsMixUpNoAnswers) {
  struct sigaction ignores = {};
  ignores.sa_handler = [](int) {};
  ignores.sa_flags = SA_RESTART;
  ASSERT_EQ(sigaction(SIGUSR1, &ignores, nullptr), 0);
  constexpr int kRequests = 20;
  const SilentRegionSocket server;
  std::jthread answers(AnswerInterrupted, server.listener(), pthread_self(),
                       kRequests);
  const auto socket =
      RegionSocket::Connect(server.path(), std::string(32, 'o'));
  ASSERT_TRUE(socket.ok()) << socket.status();
  for (int n = 1; n <= kRequests; ++n) {
    v1::RegionDoorRequest request;
    request.mutable_open()->set_owner(std::to_string(n));
    const auto reply = (*socket)->Ask(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->region().name(), std::to_string(n));
  }
}

// What was asked before must not be taken for the answer to what is asked next.
TEST(RegionSocketTest, AConnectionThatFailedOnceAnswersNothingMore) {
  const SilentRegionSocket server;
  std::jthread late([&] {
    const int connection = accept(server.listener(), nullptr, nullptr);
    char request[4096];
    EXPECT_GT(recv(connection, request, sizeof(request), 0), 0);
    v1::RegionDoorReply reply;
    reply.mutable_region()->set_name("open");
    const std::string bytes = reply.SerializeAsString();
    send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    while (recv(connection, request, sizeof(request), 0) > 0) {
    }
    close(connection);
  });
  const auto socket =
      RegionSocket::Connect(server.path(), std::string(32, 'o'));
  ASSERT_TRUE(socket.ok()) << socket.status();
  (*socket)->SetPatience(std::chrono::milliseconds(20));
  const v1::RegionDoorRequest request;
  for (int n = 0; n < 2; ++n) {
    EXPECT_TRUE(absl::IsUnavailable((*socket)->Ask(request).status()));
  }
}

TEST(RegionSocketTest, NobodyListensThere) {
  const auto socket =
      RegionSocket::Connect("/nonexistent/socket", std::string(32, 'o'));
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
}

TEST(RegionSocketTest, APathIsAPath) {
  for (const std::string& path : {std::string(), std::string(200, 'x')}) {
    const auto socket = RegionSocket::Connect(path, std::string(32, 'o'));
    EXPECT_TRUE(absl::IsInvalidArgument(socket.status())) << socket.status();
  }
}

}  // namespace
}  // namespace attendant::client
