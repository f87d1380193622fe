#include "server/tracing/http_post.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/connections/unique_fd.h"

namespace attendant::server {
namespace {

using SteadyClock = std::chrono::steady_clock;

absl::Status Unavailable(const std::string& what) {
  return absl::UnavailableError(what);
}

// True if `events` came before `deadline`.
bool Await(int fd, short events, SteadyClock::time_point deadline) {
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - SteadyClock::now());
    if (left.count() <= 0) return false;
    pollfd wait{fd, events, 0};
    const int ready = poll(&wait, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

absl::StatusOr<UniqueFd> Connect(const HttpUrl& url,
                                 SteadyClock::time_point deadline) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(url.host.c_str(), url.port.c_str(), &hints, &found);
  if (error != 0) return Unavailable(gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  std::string why = "no address";
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    UniqueFd fd(
        socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) {
      why = std::strerror(errno);
      continue;
    }
    if (connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0 &&
        errno != EINPROGRESS) {
      why = std::strerror(errno);
      continue;
    }
    int failed = 0;
    socklen_t size = sizeof(failed);
    if (!Await(fd.get(), POLLOUT, deadline)) {
      why = "no connection in time";
    } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failed, &size) !=
                   0 ||
               failed != 0) {
      why = std::strerror(failed);
    } else {
      return fd;
    }
  }
  return Unavailable(why);
}

absl::Status SendAll(int fd, const std::string& bytes,
                     SteadyClock::time_point deadline) {
  for (size_t sent = 0; sent < bytes.size();) {
    if (!Await(fd, POLLOUT, deadline))
      return Unavailable("it reads too slowly");
    const ssize_t n =
        send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
    } else if (errno != EAGAIN && errno != EINTR) {
      return Unavailable(std::strerror(errno));
    }
  }
  return absl::OkStatus();
}

// The status line.
absl::StatusOr<std::string> ReceiveLine(int fd,
                                        SteadyClock::time_point deadline) {
  std::string line;
  char buffer[512];
  while (line.find('\n') == std::string::npos && line.size() < 4096) {
    if (!Await(fd, POLLIN, deadline)) return Unavailable("no answer in time");
    const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
    if (n == 0) break;
    if (n > 0) {
      line.append(buffer, static_cast<size_t>(n));
    } else if (errno != EAGAIN && errno != EINTR) {
      return Unavailable(std::strerror(errno));
    }
  }
  return line;
}

}  // namespace

absl::StatusOr<HttpUrl> ParseHttpUrl(const std::string& text,
                                     const std::string& default_port,
                                     const std::string& default_path) {
  const absl::Status bad = absl::InvalidArgumentError(
      absl::StrCat("'", text, "', must be http://HOST[:PORT][/PATH]"));
  const std::string scheme = "http://";
  if (text.rfind(scheme, 0) != 0) return bad;
  if (text.find_first_of(" \r\n\t") != std::string::npos) return bad;
  std::string rest = text.substr(scheme.size());
  HttpUrl url{"", default_port, default_path};
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    if (slash + 1 < rest.size()) url.path = rest.substr(slash);
    rest.resize(slash);
  }
  const size_t bracket = rest.find(']');
  const size_t colon =
      rest.find(':', bracket == std::string::npos ? 0 : bracket);
  if (colon != std::string::npos) {
    url.port = rest.substr(colon + 1);
    rest.resize(colon);
  }
  if (bracket != std::string::npos) {
    if (rest.front() != '[' || rest.back() != ']') return bad;
    rest = rest.substr(1, rest.size() - 2);
  }
  url.host = rest;
  if (url.host.empty() || url.port.empty() ||
      url.port.find_first_not_of("0123456789") != std::string::npos) {
    return bad;
  }
  return url;
}

absl::StatusOr<HttpUrl> OtlpUrl(const std::string& text) {
  return ParseHttpUrl(text, "4318", "/v1/traces");
}

absl::StatusOr<int> HttpPost(const HttpUrl& url, const std::string& type,
                             const std::string& body,
                             std::chrono::milliseconds timeout) {
  const auto deadline = SteadyClock::now() + timeout;
  ASSIGN_OR_RETURN(const UniqueFd fd, Connect(url, deadline));
  RETURN_IF_ERROR(SendAll(
      fd.get(),
      absl::StrCat("POST ", url.path, " HTTP/1.1\r\nHost: ", url.host, ":",
                   url.port, "\r\nContent-Type: ", type, "\r\nContent-Length: ",
                   body.size(), "\r\nConnection: close\r\n\r\n", body),
      deadline));
  ASSIGN_OR_RETURN(const std::string line, ReceiveLine(fd.get(), deadline));
  if (line.rfind("HTTP/1.", 0) != 0 || line.size() < 12) {
    return Unavailable("its answer is no HTTP");
  }
  return std::atoi(line.c_str() + 9);
}

}  // namespace attendant::server
