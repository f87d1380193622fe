#include "server/selftest/memfd_caller.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace attendant::server {
namespace {

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<MemfdCaller>> MemfdCaller::Create(
    const std::string& socket_path, const std::string& owner, int64_t bytes) {
  std::unique_ptr<MemfdCaller> caller(new MemfdCaller);
  const UniqueFd memfd(
      memfd_create("attendant-selftest", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memfd.valid()) return SystemError("memfd_create");
  if (ftruncate(memfd.get(), bytes) != 0) return SystemError("ftruncate");
  if (fcntl(memfd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return SystemError("F_ADD_SEALS");
  }
  void* pages = mmap(nullptr, static_cast<size_t>(bytes),
                     PROT_READ | PROT_WRITE, MAP_SHARED, memfd.get(), 0);
  if (pages == MAP_FAILED) return SystemError("mmap");
  caller->data_ = static_cast<std::byte*>(pages);
  caller->bytes_ = static_cast<size_t>(bytes);

  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, socket_path.c_str(),
               sizeof(address.sun_path) - 1);
  caller->socket_ = UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(caller->socket_.get(),
              reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    return SystemError("connect to the region socket");
  }
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner(owner);
  RETURN_IF_ERROR(caller->Ask(open, -1).status());
  v1::RegionDoorRequest hand_over;
  hand_over.mutable_register_memfd()->set_byte_length(bytes);
  ASSIGN_OR_RETURN(const v1::RegionDoorReply reply,
                   caller->Ask(hand_over, memfd.get()));
  caller->name_ = reply.region().name();
  return caller;
}

MemfdCaller::~MemfdCaller() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

absl::StatusOr<v1::RegionDoorReply> MemfdCaller::Ask(
    const v1::RegionDoorRequest& request, int descriptor) {
  std::string bytes = request.SerializeAsString();
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
  ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  if (count > 0) count = recv(socket_.get(), reply, sizeof(reply), 0);
  v1::RegionDoorReply parsed;
  if (count <= 0 || !parsed.ParseFromArray(reply, static_cast<int>(count))) {
    return absl::UnavailableError("the region socket was closed");
  }
  if (parsed.code() == 0) return parsed;
  return absl::Status(static_cast<absl::StatusCode>(parsed.code()),
                      parsed.message());
}

}  // namespace attendant::server
