#include "server/regions/region_door.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/log/log.h"
#include "server/request/errors.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

constexpr size_t kMaxPacketBytes = 4096;
constexpr size_t kMaxDescriptors = 4;  // more than one is refused by name
constexpr size_t kMaxConnections = 256;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--region_socket is ", path.size(), " bytes, must be 1..",
                     sizeof(address.sun_path) - 1));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

// What a dead server left behind goes; whatever else is there stays.
void RemoveStale(const sockaddr_un& address) {
  struct stat file {};
  if (lstat(address.sun_path, &file) != 0 || !S_ISSOCK(file.st_mode)) return;
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0 &&
      errno == ECONNREFUSED) {
    unlink(address.sun_path);
  }
}

struct Packet {
  bool over = false;  // the other end is gone
  absl::Status status;
  std::string bytes;
  std::vector<UniqueFd> descriptors;
};

Packet Receive(int fd) {
  Packet packet;
  char bytes[kMaxPacketBytes];
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxDescriptors)];
  iovec data{bytes, sizeof(bytes)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t count = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  packet.over =
      count <= 0 && !(count < 0 && (errno == EAGAIN || errno == EINTR));
  if (count <= 0) {
    packet.status = absl::UnavailableError("nothing came");
    return packet;
  }
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t descriptors = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < descriptors; ++i) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      packet.descriptors.emplace_back(descriptor);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    packet.status = InvalidField("packet", "too large",
                                 "at most 4096 bytes and one descriptor");
  }
  packet.bytes.assign(bytes, static_cast<size_t>(count));
  return packet;
}

}  // namespace

RegionDoor::RegionDoor(const RegionOptions& options, const RegionMakers* makers,
                       RegionRegistry* registry, Describe describe)
    : options_(options),
      makers_(makers),
      registry_(registry),
      describe_(std::move(describe)) {}

absl::StatusOr<std::unique_ptr<RegionDoor>> RegionDoor::Start(
    const RegionOptions& options, const RegionMakers* makers,
    RegionRegistry* registry, Describe describe) {
  std::unique_ptr<RegionDoor> door(
      new RegionDoor(options, makers, registry, std::move(describe)));
  RETURN_IF_ERROR(door->Listen());
  door->thread_ = std::thread([&door = *door] { door.Run(); });
  return door;
}

absl::Status RegionDoor::Listen() {
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(options_.socket));
  RemoveStale(address);
  UniqueFd listener(
      socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!listener.valid() || !stop_.valid() ||
      bind(listener.get(), reinterpret_cast<const sockaddr*>(&address),
           sizeof(address)) != 0) {
    return absl::UnavailableError(absl::StrCat("--region_socket is '",
                                               options_.socket, "', which ",
                                               std::strerror(errno)));
  }
  listener_ = std::move(listener);
  // Who it is decides, where others than the server's own are let in.
  chmod(options_.socket.c_str(), options_.users.empty() ? 0660 : 0666);
  if (listen(listener_.get(), 64) != 0) {
    return absl::UnavailableError(std::strerror(errno));
  }
  return absl::OkStatus();
}

RegionDoor::~RegionDoor() {
  if (thread_.joinable()) {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
    thread_.join();
  }
  for (const auto& connection : connections_) Close(connection.get());
  if (listener_.valid()) unlink(options_.socket.c_str());
}

void RegionDoor::Run() {
  while (true) {
    std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0},
                                  {listener_.get(), POLLIN, 0}};
    for (const auto& connection : connections_) {
      polled.push_back({connection->fd.get(), POLLIN, 0});
    }
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = 2; i < polled.size(); ++i) {
      std::unique_ptr<Connection>& connection = connections_[i - 2];
      if (polled[i].revents == 0 || Serve(connection.get())) continue;
      Close(connection.get());
      connection.reset();
    }
    std::erase(connections_, nullptr);
    if (polled[1].revents != 0) Accept();
  }
}

bool RegionDoor::MayEnter(int fd) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  const bool may =
      peer.uid == 0 || peer.uid == geteuid() ||
      std::count(options_.users.begin(), options_.users.end(), peer.uid) > 0;
  Log(may ? LogLevel::kDebug : LogLevel::kWarning,
      may ? "region socket: a caller came" : "region socket: turned away",
      {{"uid", static_cast<int64_t>(peer.uid)},
       {"pid", static_cast<int64_t>(peer.pid)}});
  return may;
}

void RegionDoor::Accept() {
  UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid() || connections_.size() >= kMaxConnections ||
      !MayEnter(fd.get())) {
    return;
  }
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(fd);
  connections_.push_back(std::move(connection));
}

bool RegionDoor::Serve(Connection* connection) {
  Packet packet = Receive(connection->fd.get());
  if (packet.over) return false;
  if (packet.bytes.empty()) return true;
  v1::RegionDoorRequest request;
  if (packet.status.ok() && !request.ParseFromString(packet.bytes)) {
    packet.status =
        absl::InvalidArgumentError("the packet is not a RegionDoorRequest");
  }
  if (packet.status.ok()) packet.status = CheckNoUnknownFields(request);
  v1::RegionDoorReply reply;
  if (packet.status.ok()) {
    reply = Answer(request, std::move(packet.descriptors), connection);
  } else {
    reply.set_code(static_cast<int>(packet.status.code()));
    reply.set_message(std::string(packet.status.message()));
  }
  packet.descriptors.clear();  // whoever has the answer finds none left
  const std::string bytes = reply.SerializeAsString();
  // A reply of OK with nothing in it would be empty: the end of a connection.
  const std::string sent = bytes.empty() ? std::string("\x08\x00", 2) : bytes;
  // One who does not read his answers is not waited for.
  return send(connection->fd.get(), sent.data(), sent.size(),
              MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

v1::RegionDoorReply RegionDoor::Answer(const v1::RegionDoorRequest& request,
                                       std::vector<UniqueFd> descriptors,
                                       Connection* connection) {
  using Kind = v1::RegionDoorRequest::RequestCase;
  const Kind kind = request.request_case();
  const bool registers =
      kind == Kind::kRegisterMemfd || kind == Kind::kRegisterCudaVmm;
  v1::RegionDoorReply reply;
  absl::Status status;
  if (descriptors.size() != (registers ? 1u : 0u)) {
    status = InvalidField("descriptors", absl::StrCat(descriptors.size()),
                          registers ? "1" : "0");
  } else if (kind == Kind::kOpen) {
    status = CheckRegionOwner(request.open().owner());
    if (!connection->owner.empty()) {
      status = InvalidField("open", "sent twice", "sent once");
    }
    if (status.ok()) connection->owner = request.open().owner();
  } else if (connection->owner.empty()) {
    status = InvalidField("open", "unset", "the first request");
  } else if (kind == Kind::kRelease) {
    status = Release(request.release().name(), connection);
  } else if (registers) {
    auto entry = Register(request, std::move(descriptors[0]), *connection);
    status = entry.status();
    if (entry.ok()) {
      connection->regions.push_back(entry->name);
      *reply.mutable_region() = describe_(*entry);
    }
  } else {
    status = InvalidField("request", "unset", "set");
  }
  reply.set_code(static_cast<int>(status.code()));
  reply.set_message(std::string(status.message()));
  return reply;
}

absl::StatusOr<RegionEntry> RegionDoor::Register(
    const v1::RegionDoorRequest& request, UniqueFd descriptor,
    const Connection& connection) {
  if (request.has_register_memfd()) {
    return makers_->RegisterMemfd(connection.owner, request.register_memfd(),
                                  std::move(descriptor));
  }
  return makers_->RegisterCudaVmm(connection.owner, request.register_cuda_vmm(),
                                  std::move(descriptor));
}

// A connection releases its own regions only.
absl::Status RegionDoor::Release(const std::string& name,
                                 Connection* connection) {
  auto& regions = connection->regions;
  const auto found = std::find(regions.begin(), regions.end(), name);
  absl::Status status =
      registry_->Release(connection->owner, found == regions.end() ? "" : name);
  if (found != regions.end()) regions.erase(found);
  return status;
}

void RegionDoor::Close(Connection* connection) {
  for (const std::string& name : connection->regions) {
    // It may have been released by RPC.
    (void)registry_->Release(connection->owner, name);
  }
  connection->regions.clear();
}

}  // namespace attendant::server
