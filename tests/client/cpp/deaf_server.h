// A server that accepts and then never reads.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

namespace attendant::client {

// Speaks HTTP/2 far enough to be sent to, and then never reads.
class DeafServer {
 public:
  DeafServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* any = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener_, any, length), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, any, &length), 0);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~DeafServer() {
    shutdown(listener_, SHUT_RDWR);
    acceptor_.join();
    for (const int connection : connections_) close(connection);
    close(listener_);
  }
  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  void Accept() {
    // SETTINGS with INITIAL_WINDOW_SIZE 2^31 - 1, then as much of the
    // connection's window: nothing but the socket holds the client back.
    static constexpr unsigned char kFrames[] = {
        0,    0, 6, 4, 0, 0, 0, 0, 0, 0, 4,    0x7f, 0xff, 0xff,
        0xff, 0, 0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0,    0};
    for (int connection;
         (connection = accept(listener_, nullptr, nullptr)) >= 0;) {
      EXPECT_EQ(send(connection, kFrames, sizeof(kFrames), MSG_NOSIGNAL),
                static_cast<ssize_t>(sizeof(kFrames)));
      connections_.push_back(connection);
    }
  }

  const int listener_;
  int port_ = 0;
  std::thread acceptor_;
  std::vector<int> connections_;  // of acceptor_, until it is joined
};

}  // namespace attendant::client
