#include "client/cpp/door.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/auto_door.h"
#include "client/cpp/ipc_door.h"
#include "client/cpp/server_list.h"
#include "client/cpp/shm_door.h"

namespace attendant::client {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<Door>>;
using Open = Opened (*)(const std::string&, const ClientOptions&);

// Tensors in messages, by one of Client's roads.
class MessageDoor : public Door {
 public:
  MessageDoor(std::string name, DoorCapabilities capabilities, Client client)
      : name_(std::move(name)),
        capabilities_(capabilities),
        client_(std::move(client)) {}

  const std::string& name() const override { return name_; }
  DoorCapabilities capabilities() const override { return capabilities_; }
  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop) const override {
    return client_.Attend(args, timeout, std::move(stop));
  }

 private:
  const std::string name_;
  const DoorCapabilities capabilities_;
  Client client_;
};

Opened OpenRoad(std::string name, Road road, DoorCapabilities capabilities,
                const std::string& target, ClientOptions options) {
  options.road = road;
  absl::StatusOr<Client> client = Client::Create(target, std::move(options));
  if (!client.ok()) return client.status();
  return std::make_unique<MessageDoor>(std::move(name), capabilities,
                                       *std::move(client));
}

Opened OpenUnary(const std::string& target, const ClientOptions& options) {
  // gRPC counts a message's bytes in 32 bits.
  return OpenRoad("unary", Road::kUnary,
                  {.max_request_bytes = (int64_t{1} << 31) - 1}, target,
                  options);
}

Opened OpenStream(const std::string& target, const ClientOptions& options) {
  return OpenRoad("stream", Road::kStream, {.overlaps = true}, target, options);
}

Opened OpenStriped(const std::string& target, const ClientOptions& options) {
  absl::Status status = CheckDoorBalances("striped", target, options);
  if (!status.ok()) return status;
  return OpenRoad("striped", Road::kStriped, {.overlaps = true}, target,
                  options);
}

constexpr DoorRow kRows[] = {
    {"unary", "one message each way"},
    {"stream", "chunks on one connection; O returns while inputs still go"},
    {"striped", "one call's tensors over several connections"},
    {"shm", "tensors in shared memory of this machine"},
    {"ipc", "tensors stay in GPU memory"},
};
// In the order of kRows; null = this build has it not.
constexpr Open kOpen[] = {OpenUnary, OpenStream, OpenStriped, OpenShmDoor,
                          OpenIpcDoor};
static_assert(std::size(kRows) == std::size(kOpen));

}  // namespace

absl::Status Door::CopyToHost(const Tensor& tensor, std::byte* to) const {
  std::memcpy(to, tensor.data, static_cast<size_t>(tensor.num_bytes));
  return absl::OkStatus();
}

std::span<const DoorRow> DoorRows() { return kRows; }

std::vector<std::string> DoorsOfThisBuild() {
  std::vector<std::string> names;
  for (size_t d = 0; d < std::size(kRows); ++d) {
    if (kOpen[d] != nullptr) names.push_back(kRows[d].name);
  }
  return names;
}

Opened OpenDoor(const std::string& name, const std::string& target,
                const ClientOptions& options) {
  if (name == "auto") return OpenAutoDoor(target, options);
  const std::string names = absl::StrJoin(DoorsOfThisBuild(), ", ");
  const auto row = std::find_if(
      std::begin(kRows), std::end(kRows),
      [&](const DoorRow& candidate) { return name == candidate.name; });
  if (row == std::end(kRows)) {
    return InvalidField("door", name, "auto, " + names);
  }
  const Open open = kOpen[row - kRows];
  if (open == nullptr) {
    return WithErrorDetail(
        absl::UnimplementedError(absl::StrCat("this build has no door '", name,
                                              "' yet; it has ", names)),
        {"door", name, names});
  }
  return open(target, options);
}

}  // namespace attendant::client
