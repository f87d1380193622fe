#include "client/cpp/cli/watch/http_get.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

constexpr size_t kMostBytes = size_t{16} << 20;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status Unreachable(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat("http://", address, ": ", why));
}

absl::StatusOr<Socket> Connect(const std::string& address, timeval patience) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    return InvalidField("--http", address, "HOST:PORT");
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  std::string host = address.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  const int error =
      getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (error != 0) return Unreachable(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found,
                                                                 freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, 0));
    if (socket.fd() < 0) continue;
    setsockopt(socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience,
               sizeof(patience));
    setsockopt(socket.fd(), SOL_SOCKET, SO_RCVTIMEO, &patience,
               sizeof(patience));
    if (connect(socket.fd(), one->ai_addr, one->ai_addrlen) == 0) {
      return socket;
    }
    why = std::strerror(errno);
  }
  return Unreachable(address, why);
}

}  // namespace

absl::StatusOr<std::string> HttpGet(const std::string& address,
                                    const std::string& path,
                                    std::chrono::milliseconds timeout) {
  const timeval patience{
      .tv_sec = static_cast<time_t>(timeout.count() / 1000),
      .tv_usec = static_cast<suseconds_t>(timeout.count() % 1000 * 1000)};
  const absl::StatusOr<Socket> socket = Connect(address, patience);
  if (!socket.ok()) return socket.status();
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\n\r\n");
  if (send(socket->fd(), request.data(), request.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(request.size())) {
    return Unreachable(address, std::strerror(errno));
  }
  std::string reply;
  char piece[16 << 10];
  while (reply.size() <= kMostBytes) {
    const ssize_t got = recv(socket->fd(), piece, sizeof(piece), 0);
    if (got < 0) return Unreachable(address, std::strerror(errno));
    if (got == 0) break;
    reply.append(piece, static_cast<size_t>(got));
  }
  const size_t body = reply.find("\r\n\r\n");
  const std::string first = reply.substr(0, reply.find("\r\n"));
  if (reply.size() > kMostBytes || body == std::string::npos ||
      !absl::StrContains(first, " 200 ")) {
    return absl::InternalError(
        absl::StrCat("http://", address, path, ": '", first, "'"));
  }
  return reply.substr(body + 4);
}

}  // namespace attendant::client::cli
