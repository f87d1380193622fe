#include "client/cpp/cuda/registrations.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attendant/v1/region.pb.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cuda {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kTimeout{10};

template <typename Reply>
absl::StatusOr<Reply> Ask(const Client& client, const char* method,
                          const google::protobuf::MessageLite& request,
                          milliseconds patience = kTimeout) {
  const absl::StatusOr<std::string> bytes =
      client.CallMethod(absl::StrCat("/attendant.v1.RegionService/", method),
                        request.SerializeAsString(), patience);
  if (!bytes.ok()) return bytes.status();
  Reply reply;
  if (!reply.ParseFromString(*bytes)) {
    return absl::InternalError(
        absl::StrCat("the reply to ", method, " cannot be read"));
  }
  return reply;
}

}  // namespace

class Registrations::Region {
 public:
  Region(const Client* client, Allocation allocation, std::string name,
         std::shared_ptr<RegionSocket> socket)
      : allocation_(std::move(allocation)),
        range_{allocation_.base, allocation_.bytes, std::move(name)},
        client_(client),
        socket_(std::move(socket)) {}
  ~Region() {
    v1::ReleaseRequest request;
    request.set_name(range_.name);
    // If it fails, the server has forgotten the region, or ended.
    (void)Ask<v1::ReleaseResponse>(*client_, "Release", request);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  const Allocation& allocation() const { return allocation_; }
  const SharedRange& range() const { return range_; }

 private:
  const Allocation allocation_;
  const SharedRange range_;
  const Client* const client_;
  const std::shared_ptr<RegionSocket> socket_;  // that it came by, if any
};

Registrations::Registrations(Options options) : options_(std::move(options)) {}

Registrations::~Registrations() = default;

const SharedRange& Registrations::RangeOf(const Region& region) {
  return region.range();
}

const Allocation& Registrations::MemoryOf(const Region& region) {
  return region.allocation();
}

size_t Registrations::size() const {
  const std::lock_guard lock(mutex_);
  return known_.size();
}

Registrations::Held Registrations::Find(const void* pointer,
                                        SteadyTime deadline) {
  const auto* at = static_cast<const std::byte*>(pointer);
  const std::less<const std::byte*> before;
  const std::unique_lock lock(mutex_, deadline);
  if (!lock.owns_lock()) return nullptr;
  for (auto region = known_.begin(); region != known_.end(); ++region) {
    const Allocation& known = (*region)->allocation();
    if (before(at, known.base) || !before(at, known.base + known.bytes)) {
      continue;
    }
    if (BufferIdOf(*options_.driver, pointer) != known.id) continue;
    known_.splice(known_.begin(), known_, region);
    return known_.front();
  }
  return nullptr;
}

absl::StatusOr<Registrations::Held> Registrations::Hold(
    const std::string& field, const Allocation& allocation,
    SteadyTime deadline) {
  absl::Status exportable = CheckExportable(field, allocation);
  if (!exportable.ok()) return exportable;
  std::list<Held> dropped;  // released with no lock held
  const std::unique_lock lock(mutex_, deadline);
  if (!lock.owns_lock()) {
    return absl::DeadlineExceededError(
        absl::StrCat(field, ": other calls register memory"));
  }
  for (auto region = known_.begin(); region != known_.end(); ++region) {
    const Allocation& known = (*region)->allocation();
    if (known.base != allocation.base) continue;
    if (known == allocation) {
      known_.splice(known_.begin(), known_, region);
      return known_.front();
    }
    dropped.splice(dropped.begin(), known_, region);  // freed meanwhile
    break;
  }
  if (known_.size() >= kMost) {
    dropped.splice(dropped.begin(), known_, std::prev(known_.end()));
  }
  absl::StatusOr<Held> region = Register(allocation, deadline);
  if (absl::IsResourceExhausted(region.status()) && !known_.empty()) {
    // The server's bounds count what is only kept.
    known_.clear();
    dropped.clear();
    region = Register(allocation, deadline);
  }
  if (!region.ok()) return region.status();
  known_.push_front(*region);
  return region;
}

absl::StatusOr<Registrations::Held> Registrations::Register(
    const Allocation& allocation, SteadyTime deadline) {
  const bool ipc = allocation.export_by == Allocation::Export::kIpc;
  if (ipc ? !options_.takes_ipc : !options_.takes_vmm) {
    return absl::UnimplementedError(
        ipc ? "this server takes no CUDA IPC handles: it was started without "
              "--regions=cuda_ipc"
            : "this server takes no VMM memory: it was started without "
              "--region_socket");
  }
  const absl::StatusOr<std::string> name =
      ipc ? RegisterIpc(allocation, deadline)
          : RegisterVmm(allocation, deadline);
  if (!name.ok()) return name.status();
  return std::make_shared<const Region>(options_.client, allocation, *name,
                                        ipc ? nullptr : socket_);
}

absl::StatusOr<std::string> Registrations::RegisterIpc(
    const Allocation& allocation, SteadyTime deadline) {
  const absl::StatusOr<std::string> handle =
      ExportIpc(*options_.driver, allocation);
  if (!handle.ok()) return handle.status();
  v1::RegisterCudaIpcRequest request;
  request.set_handle(*handle);
  request.set_byte_length(allocation.bytes);
  request.set_device_uuid(UuidOf(*options_.driver, allocation.device));
  request.set_ready_event(options_.ready_event);
  const auto region = Ask<v1::RegionStatus>(
      *options_.client, "RegisterCudaIpc", request,
      std::min<milliseconds>(PatienceUntil(deadline), kTimeout));
  if (!region.ok()) return region.status();
  return region->name();
}

absl::StatusOr<std::string> Registrations::RegisterVmm(
    const Allocation& allocation, SteadyTime deadline) {
  const absl::StatusOr<int> descriptor =
      ExportVmm(*options_.driver, allocation);
  if (!descriptor.ok()) return descriptor.status();
  v1::RegionDoorRequest request;
  v1::RegionDoorRequest::RegisterCudaVmm* memory =
      request.mutable_register_cuda_vmm();
  memory->set_byte_length(allocation.bytes);
  memory->set_device_uuid(UuidOf(*options_.driver, allocation.device));
  memory->set_ready_event(options_.ready_event);
  const auto reply = AskSocket(request, *descriptor, deadline);
  close(*descriptor);
  if (!reply.ok()) return reply.status();
  return reply->region().name();
}

// A connection that ended, as with a restart of the server, is made anew once.
absl::StatusOr<v1::RegionDoorReply> Registrations::AskSocket(
    const v1::RegionDoorRequest& request, int descriptor, SteadyTime deadline) {
  while (true) {
    const bool is_new = socket_ == nullptr;
    if (is_new) {
      auto socket = RegionSocket::Connect(
          options_.region_socket, options_.owner, PatienceUntil(deadline));
      if (!socket.ok()) return socket.status();
      socket_ = *std::move(socket);
    }
    socket_->SetPatience(PatienceUntil(deadline));
    auto reply = socket_->Ask(request, descriptor);
    if (!absl::IsUnavailable(reply.status())) return reply;
    socket_.reset();
    if (is_new || std::chrono::steady_clock::now() >= deadline) return reply;
  }
}

void Registrations::Forget() {
  std::list<Held> dropped;
  const std::lock_guard lock(mutex_);
  dropped.swap(known_);
  socket_.reset();
}

void Registrations::Drop(const std::byte* base) {
  std::list<Held> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(
      known_.begin(), known_.end(),
      [&](const Held& region) { return region->allocation().base == base; });
  if (found != known_.end()) dropped.splice(dropped.begin(), known_, found);
}

void Registrations::Abandon(const std::vector<Held>& held,
                            milliseconds patience) {
  {
    const std::lock_guard lock(mutex_);
    known_.remove_if([&](const Held& region) {
      return std::find(held.begin(), held.end(), region) != held.end();
    });
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  milliseconds pause{1};
  while (std::chrono::steady_clock::now() < deadline) {
    const auto list =
        Ask<v1::ListResponse>(*options_.client, "List", v1::ListRequest());
    if (!list.ok()) return;  // nobody is left who could use them
    const bool used = std::any_of(
        list->regions().begin(), list->regions().end(), [&](const auto& one) {
          return one.uses() > 0 &&
                 std::any_of(held.begin(), held.end(), [&](const Held& mine) {
                   return mine->range().name == one.name();
                 });
        });
    if (!used) return;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, milliseconds(50));
  }
}

}  // namespace attendant::client::cuda
