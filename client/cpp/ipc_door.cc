#include "client/cpp/ipc_door.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/cuda/allocation.h"
#include "client/cpp/cuda/device_memory.h"
#include "client/cpp/cuda/registrations.h"
#include "client/cpp/placed_calls.h"
#include "client/cpp/same_host.h"
#include "client/cpp/shared_range.h"
#include "client/cpp/shared_tensors.h"

namespace attendant::client {
namespace {

using cuda::Allocation;
using cuda::Registrations;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// A part of a call's memory.
struct Memory {
  const char* name;
  const void* data;
  int64_t bytes;  // -1 for a view that makes no sense
};

std::vector<Memory> MemoryOf(const AttendArgs& args) {
  std::vector<Memory> all;
  const auto add = [&](const char* name, const TensorView& view) {
    if (view.given()) all.push_back({name, view.data, SpanBytes(view)});
  };
  add("q", args.q);
  add("k", args.k);
  add("v", args.v);
  add("qkv", args.qkv);
  add("mask", args.mask);
  const auto size = [](std::span<std::byte> memory) {
    return static_cast<int64_t>(memory.size());
  };
  all.push_back({"out", args.out.data(), size(args.out)});
  if (args.return_lse) all.push_back({"lse", args.lse.data(), size(args.lse)});
  return all;
}

absl::Status CheckPlace(const Memory& memory, const Allocation& allocation) {
  constexpr int64_t kAlignment = 256;
  const int64_t offset =
      static_cast<const std::byte*>(memory.data) - allocation.base;
  const std::string field = absl::StrCat(memory.name, ".data");
  if (offset % kAlignment != 0) {
    return InvalidField(field,
                        absl::StrCat("at byte ", offset, " of its allocation"),
                        "at a multiple of 256 (copy the tensor)");
  }
  if (memory.bytes > allocation.bytes - offset &&
      allocation.export_by == Allocation::Export::kVmm) {
    Allocation pieces = allocation;
    pieces.export_by = Allocation::Export::kNone;
    pieces.why_not = cuda::kSeveralPieces;
    return CheckExportable(field, pieces);
  }
  if (memory.bytes < 0 || memory.bytes > allocation.bytes - offset) {
    return InvalidField(
        field, absl::StrCat(memory.bytes, " bytes at byte ", offset),
        absl::StrCat("within its allocation's ", allocation.bytes, " bytes"));
  }
  return absl::OkStatus();
}

// The server, if it answered, has let go of the call's memory.
bool MayStillRun(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kResourceExhausted:
      return false;
    default:
      return !status.ok();
  }
}

class IpcDoor final : public Door {
 public:
  IpcDoor(Client client, const cuda::Driver& driver, int device,
          Registrations::Options options)
      : client_(std::move(client)),
        driver_(driver),
        registrations_([&] {
          options.driver = &driver;
          options.client = &client_;
          return options;
        }()),
        placed_([this, device, vmm = !options.takes_ipc](
                    int64_t bytes, PlacedCalls::Deadline) {
          return cuda::MakeDeviceMemory(
              driver_, device, bytes, vmm,
              [this](const std::byte* base) { registrations_.Drop(base); });
        }) {}

  const std::string& name() const override {
    static const std::string name = "ipc";
    return name;
  }
  DoorCapabilities capabilities() const override {
    return {.same_host_only = true, .device_tensors = true};
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      nanoseconds timeout,
                                      std::stop_token stop) const override {
    // A timeout that is none is refused by the client.
    if (timeout.count() <= 0) return client_.Attend(args, timeout, stop);
    const auto end = steady_clock::now() +
                     std::min<nanoseconds>(timeout, std::chrono::hours(24));
    if (args.cuda_stream.has_value()) {
      absl::Status ready =
          driver_.Check(driver_.StreamSynchronize(*args.cuda_stream),
                        "cuStreamSynchronize of cuda_stream");
      if (!ready.ok()) return ready;
    }
    return Call(args, end, stop, /*may_place=*/args.shared.empty());
  }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    if (IsOnDevice(args)) return args;
    return placed_.Prepare(args);
  }

  absl::Status CopyToHost(const Tensor& tensor, std::byte* to) const override {
    if (tensor.cuda_device < 0) return Door::CopyToHost(tensor, to);
    return cuda::CopyToHost(driver_, tensor.cuda_device, to, tensor.data,
                            tensor.num_bytes);
  }

 private:
  bool IsOnDevice(const AttendArgs& args) const {
    const std::vector<Memory> all = MemoryOf(args);
    return std::any_of(all.begin(), all.end(), [&](const Memory& memory) {
      return cuda::AllocationOf(driver_, memory.data).has_value();
    });
  }

  // `args` with the regions of its memory; `held` keeps them.
  absl::StatusOr<AttendArgs> Named(
      const AttendArgs& args, steady_clock::time_point end,
      std::vector<Registrations::Held>* held) const {
    AttendArgs named = args;
    for (const Memory& memory : MemoryOf(args)) {
      if (memory.data == nullptr ||
          FindShared(named.shared, memory.data, memory.bytes)) {
        continue;
      }
      Registrations::Held region = registrations_.Find(memory.data, end);
      const std::optional<Allocation> allocation =
          region != nullptr ? Registrations::MemoryOf(*region)
                            : cuda::AllocationOf(driver_, memory.data);
      if (!allocation.has_value()) continue;
      absl::Status fits = CheckPlace(memory, *allocation);
      if (!fits.ok()) return fits;
      if (region == nullptr) {
        auto made = registrations_.Hold(absl::StrCat(memory.name, ".data"),
                                        *allocation, end);
        if (!made.ok()) return made.status();
        region = *std::move(made);
      }
      named.shared.push_back(Registrations::RangeOf(*region));
      held->push_back(std::move(region));
    }
    return named;
  }

  // `may_place`: if nothing lies on the GPU, it is copied there.
  absl::StatusOr<AttendResult> Call(const AttendArgs& args,
                                    steady_clock::time_point end,
                                    const std::stop_token& stop,
                                    bool may_place) const {
    for (bool again = false;; again = true) {
      std::vector<Registrations::Held> held;
      const absl::StatusOr<AttendArgs> named = Named(args, end, &held);
      if (!named.ok()) return named.status();
      if (held.empty() && may_place) {
        return placed_.Attend(args, end, [&](const AttendArgs& placed) {
          return Call(placed, end, stop, /*may_place=*/false);
        });
      }
      absl::StatusOr<AttendResult> result = client_.Attend(
          *named,
          std::max<nanoseconds>(end - steady_clock::now(), nanoseconds(1)),
          stop);
      if (absl::IsNotFound(result.status()) && !again && !held.empty()) {
        registrations_.Forget();
        continue;
      }
      if (MayStillRun(result.status())) registrations_.Abandon(held);
      if (result.ok()) Describe(held, &*result);
      return result;
    }
  }

  void Describe(const std::vector<Registrations::Held>& held,
                AttendResult* result) const {
    result->door = name();
    for (Tensor* tensor : {&result->out, &result->lse}) {
      if (tensor->storage != nullptr || tensor->num_bytes == 0) continue;
      for (const Registrations::Held& region : held) {
        if (FindShared({Registrations::RangeOf(*region)}, tensor->data,
                       tensor->num_bytes)) {
          tensor->cuda_device = Registrations::MemoryOf(*region).device;
        }
      }
    }
  }

  const Client client_;
  const cuda::Driver& driver_;
  mutable Registrations registrations_;
  mutable PlacedCalls placed_;  // drops its memory's registrations
};

bool Has(const std::vector<std::string>& names, const char* name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status Unserved(const std::string& why) {
  return WithErrorDetail(
      absl::UnimplementedError(absl::StrCat("door 'ipc': ", why)),
      {"door", "ipc", why});
}

// What a server says of itself decides before anything of CUDA is asked.
absl::Status CheckServed(const ServerInfo& info) {
  if (info.devices.empty() || info.devices[0].backend != Backend::kCuda) {
    return Unserved("this server computes on the CPU");
  }
  if (!Has(info.region_kinds, "cuda_ipc") &&
      !Has(info.region_kinds, "cuda_vmm")) {
    return Unserved(
        "this server was started without --regions=cuda_ipc and without "
        "--region_socket");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Door>> Open(const std::string& target,
                                           const ClientOptions& options,
                                           const cuda::Driver* driver,
                                           steady_clock::time_point deadline) {
  absl::StatusOr<SameHostClient> connected =
      ConnectSameHost("ipc", target, options, deadline);
  if (!connected.ok()) return connected.status();
  const ServerInfo& info = connected->info;
  absl::Status served = CheckServed(info);
  if (!served.ok()) return served;
  if (driver == nullptr) {
    const auto loaded = cuda::Driver::Load();
    if (!loaded.ok()) return Unserved(std::string(loaded.status().message()));
    driver = *loaded;
  }
  const absl::StatusOr<int> device =
      cuda::DeviceOf(*driver, info.devices[0].uuid);
  if (!device.ok()) return Unserved(std::string(device.status().message()));
  Registrations::Options registrations;
  registrations.owner = connected->owner;
  registrations.takes_ipc = Has(info.region_kinds, "cuda_ipc");
  registrations.takes_vmm = Has(info.region_kinds, "cuda_vmm");
  registrations.region_socket = info.region_socket;
  return std::make_unique<IpcDoor>(std::move(connected->client), *driver,
                                   *device, std::move(registrations));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoor(
    const std::string& target, const ClientOptions& options) {
  return Open(target, options, nullptr, steady_clock::time_point::max());
}

absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoorBy(
    std::chrono::steady_clock::time_point deadline, const std::string& target,
    const ClientOptions& options) {
  return Open(target, options, nullptr, deadline);
}

absl::StatusOr<std::unique_ptr<Door>> OpenIpcDoorWith(
    const std::string& target, const ClientOptions& options,
    const cuda::Driver& driver) {
  return Open(target, options, &driver, steady_clock::time_point::max());
}

bool HasDeviceTensors(const AttendArgs& args) {
  const auto driver = cuda::Driver::Load();
  if (!driver.ok()) return false;
  const std::vector<Memory> all = MemoryOf(args);
  return std::any_of(all.begin(), all.end(), [&](const Memory& memory) {
    return cuda::AllocationOf(**driver, memory.data).has_value();
  });
}

}  // namespace attendant::client
