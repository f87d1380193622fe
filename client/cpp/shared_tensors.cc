#include "client/cpp/shared_tensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "attendant/v1/region.pb.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

constexpr int64_t kAlignment = 256;

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<v1::RegionDoorReply> Ask(int socket,
                                        const v1::RegionDoorRequest& request,
                                        int descriptor) {
  const absl::StatusOr<std::string> bytes =
      AskRegionDoor(socket, request.SerializeAsString(), descriptor);
  if (!bytes.ok()) return bytes.status();
  v1::RegionDoorReply reply;
  if (!reply.ParseFromString(*bytes)) {
    return absl::InternalError("the reply is not a RegionDoorReply");
  }
  if (reply.code() == 0) return reply;
  return absl::Status(static_cast<absl::StatusCode>(reply.code()),
                      reply.message());
}

absl::StatusOr<int> ConnectTo(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return InvalidField("region_socket", path, "the path of a unix socket");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return SystemError("socket");
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) == 0) {
    return fd;
  }
  const std::string why = std::strerror(errno);
  close(fd);
  return absl::UnavailableError(
      absl::StrCat("the server's region socket ", path, ": ", why));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedTensors>> SharedTensors::Create(
    const std::string& region_socket, const std::string& owner, int64_t bytes) {
  std::unique_ptr<SharedTensors> shared(new SharedTensors);
  int memfd = -1;
  absl::Status status = shared->MakeMemory(bytes, &memfd);
  if (status.ok()) status = shared->Register(region_socket, owner, memfd);
  if (memfd >= 0) close(memfd);  // both sides have it mapped
  if (!status.ok()) return status;
  return shared;
}

absl::Status SharedTensors::MakeMemory(int64_t bytes, int* memfd) {
  *memfd = memfd_create("attendant", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*memfd < 0) return SystemError("memfd_create");
  if (ftruncate(*memfd, bytes) != 0) return SystemError("ftruncate");
  if (fcntl(*memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return SystemError("F_ADD_SEALS");
  }
  void* pages = mmap(nullptr, static_cast<size_t>(bytes),
                     PROT_READ | PROT_WRITE, MAP_SHARED, *memfd, 0);
  if (pages == MAP_FAILED) return SystemError("mmap");
  range_.data = static_cast<std::byte*>(pages);
  range_.bytes = bytes;
  return absl::OkStatus();
}

absl::Status SharedTensors::Register(const std::string& region_socket,
                                     const std::string& owner, int memfd) {
  const absl::StatusOr<int> connected = ConnectTo(region_socket);
  if (!connected.ok()) return connected.status();
  socket_ = *connected;
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner(owner);
  auto reply = Ask(socket_, open, -1);
  if (!reply.ok()) return reply.status();
  v1::RegionDoorRequest hand_over;
  hand_over.mutable_register_memfd()->set_byte_length(range_.bytes);
  reply = Ask(socket_, hand_over, memfd);
  if (!reply.ok()) return reply.status();
  range_.name = reply->region().name();
  return absl::OkStatus();
}

SharedTensors::~SharedTensors() {
  if (socket_ >= 0) close(socket_);
  if (range_.data != nullptr) {
    munmap(range_.data, static_cast<size_t>(range_.bytes));
  }
}

std::byte* SharedTensors::Allocate(int64_t bytes) {
  const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes < 0 || begin > range_.bytes || bytes > range_.bytes - begin) {
    return nullptr;
  }
  used_ = begin + bytes;
  return range_.data + begin;
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
  ssize_t count = sendmsg(socket, &message, MSG_NOSIGNAL);
  if (count > 0) count = recv(socket, reply, sizeof(reply), 0);
  if (count <= 0) {
    return absl::UnavailableError(
        "the server's region socket was closed (may this user use it?)");
  }
  return std::string(reply, static_cast<size_t>(count));
}

std::string RandomRegionOwner() {
  unsigned char bytes[16] = {};
  std::string owner;
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return owner;
  for (const unsigned char byte : bytes) {
    owner += "0123456789abcdef"[byte >> 4];
    owner += "0123456789abcdef"[byte & 15];
  }
  return owner;
}

}  // namespace attendant::client
