// A region socket that accepts and then never answers.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace attendant::client {

// Callers come as far as its backlog: nobody reads what they say.
class SilentRegionSocket {
 public:
  SilentRegionSocket()
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
  ~SilentRegionSocket() {
    close(listener_);
    unlink(path_.c_str());
  }
  const std::string& path() const { return path_; }
  // For a test that answers after all.
  int listener() const { return listener_; }

 private:
  const std::string path_;
  const int listener_;
};

}  // namespace attendant::client
