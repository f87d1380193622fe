// A TCP connection by hand, and as much HTTP/2 as an impolite client needs.
#pragma once

#include <cstdint>
#include <string>

namespace attendant::testing {

class RawConnection {
 public:
  // `address` is IPV4:PORT.
  explicit RawConnection(const std::string& address);
  ~RawConnection();
  RawConnection(RawConnection&& other) noexcept : fd_(other.fd_) {
    other.fd_ = -1;
  }
  RawConnection& operator=(RawConnection&&) = delete;

  bool connected() const { return fd_ >= 0; }
  // False once the peer has closed. Never blocks on a peer that takes nothing.
  bool Send(const std::string& bytes) const;
  // What has come within `milliseconds`, at once when something came; *closed
  // if the peer closed.
  std::string Receive(int milliseconds, bool* closed) const;

 private:
  int fd_ = -1;
};

// Preface and SETTINGS.
std::string Http2Start();
std::string Http2Frame(uint8_t type, uint8_t flags, uint32_t stream,
                       const std::string& payload);
// HEADERS of a gRPC call to `path`.
std::string GrpcHeaders(uint32_t stream, const std::string& path);

inline constexpr uint8_t kHttp2Data = 0;
inline constexpr uint8_t kHttp2Headers = 1;
inline constexpr uint8_t kHttp2RstStream = 3;
inline constexpr uint8_t kHttp2EndStream = 1;

}  // namespace attendant::testing
