// What the server lets a peer send, as its first bytes tell: HTTP/2 by hand.
#include "server/connections/connection_window.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "server/connections/unique_fd.h"
#include "tests/server/served_engine.h"

namespace attendant::testing {
namespace {

using server::UniqueFd;

constexpr int64_t kHttp2Window = 65535;  // of a connection, if nobody says more
constexpr char kSettingsFrame = 4, kWindowUpdateFrame = 8;
constexpr uint32_t kInitialWindowSetting = 4;

UniqueFd ConnectTo(const std::string& address) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(
      static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(
      connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
  // Whoever waits for what is never announced fails.
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return fd;
}

std::string Read(const UniqueFd& fd, size_t bytes) {
  std::string read(bytes, '\0');
  EXPECT_EQ(recv(fd.get(), read.data(), bytes, MSG_WAITALL),
            static_cast<ssize_t>(bytes));
  return read;
}

// Big-endian.
uint32_t Number(const std::string& bytes, size_t at, size_t size) {
  uint32_t number = 0;
  for (size_t i = 0; i < size; ++i) {
    number = number << 8 | static_cast<uint8_t>(bytes[at + i]);
  }
  return number;
}

struct Windows {
  int64_t stream = -1, connection = -1;
};

// Greets the server and reads until it has announced both.
Windows Announced(const std::string& address) {
  const UniqueFd fd = ConnectTo(address);
  const std::string greeting =
      std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") +
      std::string("\0\0\0\4\0\0\0\0\0", 9);  // SETTINGS, none
  EXPECT_EQ(send(fd.get(), greeting.data(), greeting.size(), 0),
            static_cast<ssize_t>(greeting.size()));
  Windows windows;
  while ((windows.stream < 0 || windows.connection < 0) &&
         !::testing::Test::HasFailure()) {
    const std::string head = Read(fd, 9);
    const std::string body = Read(fd, Number(head, 0, 3));
    if (head[3] == kWindowUpdateFrame && Number(head, 5, 4) == 0) {
      windows.connection = kHttp2Window + Number(body, 0, 4);
    }
    if (head[3] != kSettingsFrame) continue;
    for (size_t at = 0; at + 6 <= body.size(); at += 6) {
      if (Number(body, at, 2) != kInitialWindowSetting) continue;
      windows.stream = Number(body, at + 2, 4);
    }
  }
  return windows;
}

Windows AnnouncedWith(int64_t flag) {
  server::ServerOptions options = LoopbackOptions();
  options.http2_window_bytes = flag;
  ServedEngine served(options);
  return Announced(served.server().grpc_addresses()[0]);
}

TEST(ConnectionWindow, IsAsLargeAsThatOfAStream) {
  for (const int64_t bytes : {int64_t{3} << 20, int64_t{1} << 20}) {
    const Windows windows = AnnouncedWith(bytes);
    EXPECT_EQ(windows.stream, bytes);
    EXPECT_EQ(windows.connection, bytes);
  }
}

TEST(ConnectionWindow, ThisGrpcHasTheVariable) {
  EXPECT_TRUE(server::FixConnectionWindow(int64_t{1} << 20));
}

}  // namespace
}  // namespace attendant::testing
