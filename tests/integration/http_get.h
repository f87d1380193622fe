// The least HTTP client: one request, the whole answer.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string>

namespace attendant::testing {

// `request` is "GET /path"; `address` is IPV4:PORT. Head and body; empty if
// nobody answers.
inline std::string HttpAsk(const std::string& address,
                           const std::string& request) {
  const size_t colon = address.rfind(':');
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port =
      htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // Who accepts and then says nothing is nobody.
  const timeval patience{60, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  std::string answer;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0) {
    const std::string text = request + " HTTP/1.1\r\nHost: a\r\n\r\n";
    if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) > 0) {
      char buffer[16'384];
      // With a timeout, recv is interrupted by a process that stops and goes
      // on.
      for (ssize_t n; (n = ::recv(fd, buffer, sizeof(buffer), 0)) > 0 ||
                      (n < 0 && errno == EINTR);) {
        if (n > 0) answer.append(buffer, static_cast<size_t>(n));
      }
    }
  }
  ::close(fd);
  return answer;
}

}  // namespace attendant::testing
