#include "server/connections/socket_bytes.h"

#include <arpa/inet.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace attendant::server {
namespace {

// gRPC's name of the socket's peer; empty for other kinds.
std::string PeerOf(int socket) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(socket, address, &length) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    inet_ntop(AF_INET, &v4->sin_addr, text, sizeof(text));
    return std::string("ipv4:") + text + ":" +
           std::to_string(ntohs(v4->sin_port));
  }
  if (address->sa_family != AF_INET6) return "";
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  const std::string port = std::to_string(ntohs(v6->sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
    inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof(text));
    return std::string("ipv4:") + text + ":" + port;
  }
  inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
  return std::string("ipv6:%5B") + text + "%5D:" + port;
}

}  // namespace

int FindSocket(const std::string& peer) {
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end;
       !error && it != end; it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    if (PeerOf(fd) == peer) return fd;
  }
  return -1;
}

int64_t ReceivedBytes(int socket, const std::string& peer) {
  if (socket < 0 || PeerOf(socket) != peer) return -1;
  tcp_info info{};
  socklen_t length = sizeof(info);
  if (getsockopt(socket, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
      length < offsetof(tcp_info, tcpi_bytes_received) +
                   sizeof(info.tcpi_bytes_received)) {
    return -1;
  }
  return static_cast<int64_t>(info.tcpi_bytes_received);
}

}  // namespace attendant::server
