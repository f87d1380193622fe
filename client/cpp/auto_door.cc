#include "client/cpp/auto_door.h"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "client/cpp/door_chooser.h"
#include "client/cpp/ipc_door.h"
#include "client/cpp/server_list.h"
#include "client/cpp/shm_door.h"

namespace attendant::client {
namespace {

using DoorOr = absl::StatusOr<std::unique_ptr<Door>>;

class AutoDoor final : public Door {
 public:
  AutoDoor(std::string target, ClientOptions options, Client client)
      : target_(std::move(target)),
        options_(std::move(options)),
        same_host_(IsSameHost(target_) && !IsBalanced(target_, options_)),
        client_(std::move(client)) {}

  const std::string& name() const override {
    static const std::string name = "auto";
    return name;
  }
  DoorCapabilities capabilities() const override {
    return {.device_tensors = true, .overlaps = true};
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop) const override {
    const absl::StatusOr<Door*> door = DoorFor(args);
    if (!door.ok()) return door.status();
    return *door == nullptr ? client_.Attend(args, timeout, std::move(stop))
                            : (*door)->Attend(args, timeout, std::move(stop));
  }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    const absl::StatusOr<Door*> door = DoorFor(args);
    if (!door.ok()) return door.status();
    return *door == nullptr ? args : (*door)->Prepare(args);
  }

  absl::Status CopyToHost(const Tensor& tensor, std::byte* to) const override {
    if (tensor.cuda_device < 0) return Door::CopyToHost(tensor, to);
    const absl::StatusOr<Door*> door = Ipc();
    return door.ok() ? (*door)->CopyToHost(tensor, to) : door.status();
  }

 private:
  // Null = messages.
  absl::StatusOr<Door*> DoorFor(const AttendArgs& args) const {
    if (HasDeviceTensors(args)) return Ipc();
    return same_host_ ? Shm() : nullptr;
  }

  // An error is none for good: the next call tries again.
  absl::StatusOr<Door*> Ipc() const {
    const std::lock_guard lock(mutex_);
    if (ipc_ == nullptr) {
      DoorOr opened = OpenIpcDoor(target_, options_);
      if (!opened.ok()) return opened.status();
      ipc_ = *std::move(opened);
    }
    return ipc_.get();
  }

  // Null if the server shares no memory, or has not said yet.
  Door* Shm() const {
    const std::lock_guard lock(mutex_);
    if (shm_ != nullptr || shares_nothing_) return shm_.get();
    ClientOptions once = options_;
    once.retry.max_attempts = 1;
    const absl::StatusOr<Client> client = Client::Create(target_, once);
    if (!client.ok()) return nullptr;
    const absl::StatusOr<ServerInfo> info = client->GetServerInfo(kPatience);
    if (!info.ok()) return nullptr;
    DoorOr opened = info->region_socket.empty()
                        ? DoorOr(absl::UnimplementedError("no socket"))
                        : OpenShmDoor(target_, options_);
    shares_nothing_ = !opened.ok();
    if (opened.ok()) shm_ = *std::move(opened);
    return shm_.get();
  }

  static constexpr std::chrono::milliseconds kPatience{500};
  const std::string target_;
  const ClientOptions options_;
  const bool same_host_;
  const Client client_;
  mutable std::mutex mutex_;  // guards what follows
  mutable bool shares_nothing_ = false;
  mutable std::unique_ptr<Door> shm_;
  mutable std::unique_ptr<Door> ipc_;
};

}  // namespace

DoorOr OpenAutoDoor(const std::string& target, const ClientOptions& options) {
  ClientOptions with_road = options;
  with_road.road = Road::kAuto;
  absl::StatusOr<Client> client = Client::Create(target, with_road);
  if (!client.ok()) return client.status();
  return std::make_unique<AutoDoor>(target, options, *std::move(client));
}

}  // namespace attendant::client
