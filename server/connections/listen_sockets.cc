#include "server/connections/listen_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace attendant::server {
namespace {

constexpr int kBacklog = 512;

absl::Status CannotBind(const std::string& address, const std::string& why) {
  return absl::UnavailableError(absl::StrCat(
      "--listen is '", address, "', which cannot be bound: ", why));
}

bool MakeUnixAddress(const std::string& path, sockaddr_un* address) {
  address->sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address->sun_path)) return false;
  std::memcpy(address->sun_path, path.data(), path.size());
  return true;
}

absl::StatusOr<std::vector<ListenSocket>> ListenUnix(
    const std::string& address) {
  const std::string path = address.substr(5);
  sockaddr_un to{};
  if (!MakeUnixAddress(path, &to)) {
    return CannotBind(address, "a path has 1..107 bytes");
  }
  RETURN_IF_ERROR(RemoveStaleSocket(path));
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Not open to others even for a moment.
  const mode_t umask_before = umask(0177);
  const int bound =
      bind(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  const int error = errno;
  umask(umask_before);
  if (bound != 0) return CannotBind(address, std::strerror(error));
  if (listen(fd.get(), kBacklog) != 0) {
    return CannotBind(address, std::strerror(errno));
  }
  std::vector<ListenSocket> sockets;
  sockets.push_back({std::move(fd), address});
  return sockets;
}

int PortOf(const sockaddr_storage& storage) {
  return ntohs(storage.ss_family == AF_INET
                   ? reinterpret_cast<const sockaddr_in&>(storage).sin_port
                   : reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
}

void SetPort(int port, addrinfo* info) {
  if (info->ai_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(info->ai_addr)->sin_port =
        htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in6*>(info->ai_addr)->sin6_port =
        htons(static_cast<uint16_t>(port));
  }
}

absl::StatusOr<UniqueFd> ListenTcp(const std::string& address,
                                   const addrinfo& info) {
  UniqueFd fd(
      socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return CannotBind(address, std::strerror(errno));
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (info.ai_family == AF_INET6) {
    // [::] takes IPv4 too, as gRPC has it.
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd.get(), info.ai_addr, info.ai_addrlen) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return CannotBind(address, std::strerror(errno));
  }
  return fd;
}

}  // namespace

absl::Status RemoveStaleSocket(const std::string& path) {
  struct stat file {};
  if (lstat(path.c_str(), &file) != 0) return absl::OkStatus();
  if (!S_ISSOCK(file.st_mode)) {
    return absl::UnavailableError(
        absl::StrCat(path, " is there and is no socket"));
  }
  sockaddr_un to{};
  if (!MakeUnixAddress(path, &to)) return absl::OkStatus();
  const UniqueFd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&to),
              sizeof(to)) == 0) {
    return absl::UnavailableError(
        absl::StrCat("another server answers at ", path));
  }
  if (errno == ECONNREFUSED) unlink(path.c_str());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ListenSocket>> Listen(const std::string& address) {
  if (address.rfind("unix:", 0) == 0) return ListenUnix(address);
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (!host.empty() && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (error != 0) return CannotBind(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found,
                                                             freeaddrinfo);
  std::vector<ListenSocket> sockets;
  int bound_port = 0;
  for (addrinfo* a = found; a != nullptr; a = a->ai_next) {
    if (bound_port != 0) SetPort(bound_port, a);
    ASSIGN_OR_RETURN(UniqueFd fd, ListenTcp(address, *a));
    sockaddr_storage storage{};
    socklen_t length = sizeof(storage);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &length);
    bound_port = PortOf(storage);
    sockets.push_back({std::move(fd), absl::StrCat(address.substr(0, colon),
                                                   ":", bound_port)});
  }
  return sockets;
}

}  // namespace attendant::server
