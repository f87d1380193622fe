#include "client/cpp/region_socket.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/shared_tensors.h"

namespace attendant::client {
namespace {

// No call of the socket's waits longer.
void SetWaits(int socket, std::chrono::milliseconds patience) {
  timeval time{};
  time.tv_sec = patience.count() / 1000;
  time.tv_usec = patience.count() % 1000 * 1000;
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
}

// Of SetWaits.
std::chrono::milliseconds PatienceOf(int socket) {
  timeval time{};
  socklen_t size = sizeof(time);
  getsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &time, &size);
  return std::chrono::seconds(time.tv_sec) +
         std::chrono::milliseconds(time.tv_usec / 1000);
}

// `call` again while signals interrupt it: a call that may wait for so long and
// no longer is never restarted by the system.
template <typename Call>
auto Uninterrupted(std::chrono::steady_clock::time_point end, Call call) {
  while (true) {
    const auto result = call();
    if (result >= 0 || errno != EINTR) return result;
    if (std::chrono::steady_clock::now() >= end) {
      errno = EAGAIN;
      return result;
    }
  }
}

absl::StatusOr<int> ConnectTo(const std::string& path,
                              std::chrono::milliseconds patience) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidField("region_socket", path, "the path of a unix socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("socket: ", std::strerror(errno)));
  }
  SetWaits(fd, patience);
  const auto connects = [&] {
    return connect(fd, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address));
  };
  if (Uninterrupted(std::chrono::steady_clock::now() + patience, connects) ==
      0) {
    return fd;
  }
  const std::string why = std::strerror(errno);
  close(fd);
  return absl::UnavailableError(
      absl::StrCat("the server's region socket ", path, ": ", why));
}

}  // namespace

std::chrono::milliseconds PatienceUntil(
    std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  // Up: who waited so long has reached the deadline.
  const auto left = std::chrono::ceil<milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return std::clamp<milliseconds>(left, milliseconds(1),
                                  std::chrono::seconds(60));
}

absl::StatusOr<std::unique_ptr<RegionSocket>> RegionSocket::Connect(
    const std::string& path, const std::string& owner,
    std::chrono::milliseconds patience) {
  const absl::StatusOr<int> connected = ConnectTo(path, patience);
  if (!connected.ok()) return connected.status();
  std::unique_ptr<RegionSocket> socket(new RegionSocket(*connected));
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner(owner);
  const auto reply = socket->Ask(open);
  if (!reply.ok()) return reply.status();
  return socket;
}

RegionSocket::~RegionSocket() { close(socket_); }

void RegionSocket::SetPatience(std::chrono::milliseconds patience) {
  SetWaits(socket_, patience);
}

absl::StatusOr<v1::RegionDoorReply> RegionSocket::Ask(
    const v1::RegionDoorRequest& request, int descriptor) {
  const std::lock_guard lock(mutex_);
  const absl::StatusOr<std::string> bytes =
      AskRegionDoor(socket_, request.SerializeAsString(), descriptor);
  if (!bytes.ok()) return bytes.status();
  v1::RegionDoorReply reply;
  if (!reply.ParseFromString(*bytes)) {
    return absl::InternalError("the reply is not a RegionDoorReply");
  }
  if (reply.code() == 0) return reply;
  return absl::Status(static_cast<absl::StatusCode>(reply.code()),
                      reply.message());
}

absl::StatusOr<std::string> AskRegionDoor(int socket,
                                          const std::string& request,
                                          int descriptor) {
  std::string bytes = request;
  iovec data{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
  }
  char reply[4096];
  const auto end = std::chrono::steady_clock::now() + PatienceOf(socket);
  ssize_t count = Uninterrupted(
      end, [&] { return sendmsg(socket, &message, MSG_NOSIGNAL); });
  if (count > 0) {
    count = Uninterrupted(
        end, [&] { return recv(socket, reply, sizeof(reply), 0); });
  }
  if (count > 0) return std::string(reply, static_cast<size_t>(count));
  const bool is_late = count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  // What comes later is no answer to what is asked next.
  shutdown(socket, SHUT_RDWR);
  return absl::UnavailableError(
      is_late ? "the server's region socket gave no answer"
              : "the server's region socket was closed (may this user use "
                "it?)");
}

}  // namespace attendant::client
