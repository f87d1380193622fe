#include "tests/operation/raw_connection.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace attendant::testing {
namespace {

// RFC 7541, 6.2.2: a literal that enters no table, lengths below 127.
std::string Literal(const std::string& name, const std::string& value) {
  std::string field(1, '\0');
  field += static_cast<char>(name.size());
  field += name;
  field += static_cast<char>(value.size());
  return field + value;
}

}  // namespace

RawConnection::RawConnection(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
    ::close(fd_);
    fd_ = -1;
  }
}

RawConnection::~RawConnection() {
  if (fd_ >= 0) ::close(fd_);
}

bool RawConnection::Send(const std::string& bytes) const {
  return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >
         0;
}

std::string RawConnection::Receive(int milliseconds, bool* closed) const {
  *closed = false;
  pollfd ready{fd_, POLLIN, 0};
  if (::poll(&ready, 1, milliseconds) <= 0) return "";
  char buffer[4096];
  const ssize_t count = ::recv(fd_, buffer, sizeof(buffer), 0);
  *closed = count <= 0;
  return std::string(buffer, count > 0 ? static_cast<size_t>(count) : 0);
}

std::string Http2Frame(uint8_t type, uint8_t flags, uint32_t stream,
                       const std::string& payload) {
  std::string frame;
  for (const int shift : {16, 8, 0}) {
    frame += static_cast<char>(payload.size() >> shift);
  }
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) {
    frame += static_cast<char>(stream >> shift);
  }
  return frame + payload;
}

std::string Http2Start() {
  constexpr uint8_t kSettings = 4;
  return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Http2Frame(kSettings, 0, 0, "");
}

std::string GrpcHeaders(uint32_t stream, const std::string& path) {
  constexpr uint8_t kEndHeaders = 4;
  return Http2Frame(kHttp2Headers, kEndHeaders, stream,
                    Literal(":method", "POST") + Literal(":scheme", "http") +
                        Literal(":path", path) + Literal(":authority", "a") +
                        Literal("te", "trailers") +
                        Literal("content-type", "application/grpc"));
}

}  // namespace attendant::testing
