#include "client/cpp/auto_door.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "client/cpp/door_chooser.h"
#include "client/cpp/ipc_door.h"
#include "client/cpp/region_socket.h"
#include "client/cpp/server_list.h"
#include "client/cpp/shm_door.h"

namespace attendant::client {
namespace {

using DoorOr = absl::StatusOr<std::unique_ptr<Door>>;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using SteadyTime = steady_clock::time_point;

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
    // A timeout that is none is refused by the client.
    if (timeout.count() <= 0) {
      return client_.Attend(args, timeout, std::move(stop));
    }
    const SteadyTime begin = steady_clock::now();
    const absl::StatusOr<Door*> door = DoorFor(
        args, begin + std::min<nanoseconds>(timeout, std::chrono::hours(24)));
    if (!door.ok()) return door.status();
    const nanoseconds left = std::max<nanoseconds>(
        timeout - (steady_clock::now() - begin), nanoseconds(1));
    return *door == nullptr ? client_.Attend(args, left, std::move(stop))
                            : (*door)->Attend(args, left, std::move(stop));
  }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    const absl::StatusOr<Door*> door = DoorFor(args, SteadyTime::max());
    if (!door.ok()) return door.status();
    return *door == nullptr ? args : (*door)->Prepare(args);
  }

  absl::Status CopyToHost(const Tensor& tensor, std::byte* to) const override {
    if (tensor.cuda_device < 0) return Door::CopyToHost(tensor, to);
    const absl::StatusOr<Door*> door = Ipc(SteadyTime::max());
    return door.ok() ? (*door)->CopyToHost(tensor, to) : door.status();
  }

 private:
  using Lock = std::unique_lock<std::timed_mutex>;

  // Null = messages.
  absl::StatusOr<Door*> DoorFor(const AttendArgs& args,
                                SteadyTime deadline) const {
    if (HasDeviceTensors(args)) return Ipc(deadline);
    return same_host_ ? Shm(deadline) : nullptr;
  }

  // An error is none for good: the next call tries again.
  absl::StatusOr<Door*> Ipc(SteadyTime deadline) const {
    const Lock lock = LockBy(ipc_mutex_, deadline);
    if (!lock.owns_lock()) {
      return absl::DeadlineExceededError(
          "door 'ipc': other calls were opening it all the time");
    }
    if (ipc_ == nullptr) {
      DoorOr opened = OpenIpcDoorBy(deadline, target_, options_);
      if (!opened.ok()) return opened.status();
      ipc_ = *std::move(opened);
    }
    return ipc_.get();
  }

  // Null if the server shares no memory, or has not said yet.
  Door* Shm(SteadyTime deadline) const {
    const SteadyTime begin = steady_clock::now();
    // Messages need time as well.
    const SteadyTime by =
        begin + std::min<nanoseconds>((deadline - begin) / 2, kPatience);
    const Lock lock = LockBy(shm_mutex_, by);
    if (!lock.owns_lock()) return nullptr;
    if (shm_ != nullptr || shares_nothing_ || begin < next_try_) {
      return shm_.get();
    }
    ClientOptions once = options_;
    once.retry.max_attempts = 1;
    const absl::StatusOr<Client> client = Client::Create(target_, once);
    if (!client.ok()) return nullptr;
    const absl::StatusOr<ServerInfo> info =
        client->GetServerInfo(PatienceUntil(by));
    if (!info.ok()) {
      PauseIfLate(by);
      return nullptr;
    }
    DoorOr opened = info->region_socket.empty()
                        ? DoorOr(absl::UnimplementedError("no socket"))
                        : OpenShmDoorBy(by, target_, options_);
    if (opened.ok()) {
      shm_ = *std::move(opened);
    } else {
      shares_nothing_ = !PauseIfLate(by);
    }
    return shm_.get();
  }

  // A server that says nothing may only be busy: messages carry what comes
  // next, instead of each call waiting anew.
  bool PauseIfLate(SteadyTime by) const {
    const SteadyTime now = steady_clock::now();
    if (now < by) return false;
    next_try_ = now + kPause;
    return true;
  }

  static Lock LockBy(std::timed_mutex& mutex, SteadyTime deadline) {
    Lock lock(mutex, std::defer_lock);
    // The longest is as good as for ever, and overflows nothing.
    static_cast<void>(lock.try_lock_for(std::min<nanoseconds>(
        deadline - steady_clock::now(), std::chrono::hours(24))));
    return lock;
  }

  static constexpr std::chrono::milliseconds kPatience{500};
  static constexpr std::chrono::seconds kPause{10};
  const std::string target_;
  const ClientOptions options_;
  const bool same_host_;
  const Client client_;
  mutable std::timed_mutex ipc_mutex_;
  mutable std::unique_ptr<Door> ipc_;   // guarded by ipc_mutex_
  mutable std::timed_mutex shm_mutex_;  // guards what follows
  mutable bool shares_nothing_ = false;
  mutable SteadyTime next_try_{};  // no shared memory is asked for before
  mutable std::unique_ptr<Door> shm_;
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
