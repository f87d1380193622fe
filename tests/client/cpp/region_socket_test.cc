#include "client/cpp/region_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

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
