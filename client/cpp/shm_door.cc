#include "client/cpp/shm_door.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/door_memory.h"
#include "client/cpp/placed_calls.h"
#include "client/cpp/region_socket.h"
#include "client/cpp/same_host.h"
#include "client/cpp/shared_tensors.h"

namespace attendant::client {
namespace {

class MemfdMemory final : public DoorMemory {
 public:
  explicit MemfdMemory(std::unique_ptr<SharedTensors> shared)
      : shared_(std::move(shared)) {}
  const SharedRange& range() const override { return shared_->range(); }

 private:
  const std::unique_ptr<SharedTensors> shared_;
};

class ShmDoor final : public Door {
 public:
  ShmDoor(Client client, std::string region_socket, std::string owner)
      : client_(std::move(client)),
        placed_([socket = std::move(region_socket), owner = std::move(owner)](
                    int64_t bytes, PlacedCalls::Deadline deadline)
                    -> absl::StatusOr<std::unique_ptr<DoorMemory>> {
          auto shared = SharedTensors::Create(socket, owner, bytes, deadline);
          if (!shared.ok()) return shared.status();
          return std::make_unique<MemfdMemory>(*std::move(shared));
        }) {}

  const std::string& name() const override {
    static const std::string name = "shm";
    return name;
  }
  DoorCapabilities capabilities() const override {
    return {.same_host_only = true};
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop) const override {
    const auto call = [&](const AttendArgs& placed,
                          std::chrono::nanoseconds left) {
      absl::StatusOr<AttendResult> result = client_.Attend(placed, left, stop);
      if (result.ok()) result->door = name();
      return result;
    };
    // A timeout that is none is refused by the client.
    if (!args.shared.empty() || timeout.count() <= 0) {
      return call(args, timeout);
    }
    using std::chrono::steady_clock;
    const auto end = steady_clock::now() + std::min<std::chrono::nanoseconds>(
                                               timeout, std::chrono::hours(24));
    return placed_.Attend(args, end, [&](const AttendArgs& placed) {
      // At least 1 ns: it was in time a moment ago.
      return call(placed,
                  std::max<std::chrono::nanoseconds>(
                      end - steady_clock::now(), std::chrono::nanoseconds(1)));
    });
  }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    return placed_.Prepare(args);
  }

 private:
  const Client client_;
  mutable PlacedCalls placed_;
};

}  // namespace

bool ServerSharesMemory(const std::string& target,
                        const ClientOptions& options) {
  ClientOptions once = options;
  once.retry.max_attempts = 1;
  const absl::StatusOr<Client> client = Client::Create(target, once);
  if (!client.ok()) return false;
  const absl::StatusOr<ServerInfo> info =
      client->GetServerInfo(std::chrono::milliseconds(500));
  return info.ok() && !info->region_socket.empty();
}

absl::StatusOr<std::unique_ptr<Door>> OpenShmDoor(
    const std::string& target, const ClientOptions& options) {
  return OpenShmDoorBy(std::chrono::steady_clock::time_point::max(), target,
                       options);
}

absl::StatusOr<std::unique_ptr<Door>> OpenShmDoorBy(
    std::chrono::steady_clock::time_point deadline, const std::string& target,
    const ClientOptions& options) {
  absl::StatusOr<SameHostClient> connected =
      ConnectSameHost("shm", target, options, deadline);
  if (!connected.ok()) return connected.status();
  const ServerInfo& info = connected->info;
  if (info.region_socket.empty()) {
    return absl::UnimplementedError(
        "door 'shm': this server was started without --region_socket");
  }
  // May this process use it? The first call would be late to find out.
  const auto socket = RegionSocket::Connect(
      info.region_socket, connected->owner, PatienceUntil(deadline));
  if (!socket.ok()) {
    return absl::Status(
        socket.status().code(),
        absl::StrCat("door 'shm': ", socket.status().message()));
  }
  return std::make_unique<ShmDoor>(std::move(connected->client),
                                   info.region_socket, connected->owner);
}

}  // namespace attendant::client
