#include "client/cpp/region_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>

#include "client/cpp/shared_tensors.h"

namespace attendant::client {
namespace {

using ::testing::HasSubstr;

// Callers come as far as its backlog: nobody reads what they say.
class SilentServer {
 public:
  SilentServer()
      : path_(::testing::TempDir() + "silent_" + std::to_string(getpid())),
        listener_(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.data(), path_.size());
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_, 1), 0);
  }
  ~SilentServer() {
    close(listener_);
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const int listener_;
};

TEST(RegionSocketTest, AServerThatStandsStillIsNotWaitedForForEver) {
  SilentServer server;
  const auto socket = RegionSocket::Connect(server.path(), std::string(32, 'o'),
                                            std::chrono::milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(socket.status())) << socket.status();
  EXPECT_THAT(socket.status().message(), HasSubstr("no answer"));
}

TEST(RegionSocketTest, MemoryIsNotSharedBeyondADeadline) {
  SilentServer server;
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
