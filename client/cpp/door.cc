#include "client/cpp/door.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/shm_door.h"

namespace attendant::client {
namespace {

using Opened = absl::StatusOr<std::unique_ptr<Door>>;
using Open = Opened (*)(const std::string&, const ClientOptions&);

class UnaryDoor : public Door {
 public:
  explicit UnaryDoor(Client client) : client_(std::move(client)) {}

  const std::string& name() const override {
    static const std::string name = "unary";
    return name;
  }
  DoorCapabilities capabilities() const override {
    // gRPC counts a message's bytes in 32 bits.
    return {.max_request_bytes = (int64_t{1} << 31) - 1};
  }
  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop) const override {
    return client_.Attend(args, timeout, std::move(stop));
  }

 private:
  Client client_;
};

Opened OpenUnary(const std::string& target, const ClientOptions& options) {
  absl::StatusOr<Client> client = Client::Create(target, options);
  if (!client.ok()) return client.status();
  return std::make_unique<UnaryDoor>(*std::move(client));
}

constexpr DoorRow kRows[] = {
    {"unary", "one message each way"},
    {"stream", "chunks on one connection; O returns while inputs still go"},
    {"striped", "one call's tensors over several connections"},
    {"shm", "tensors in shared memory of this machine"},
    {"ipc", "tensors stay in GPU memory"},
};
// In the order of kRows; null = this build has it not.
constexpr Open kOpen[] = {OpenUnary, nullptr, nullptr, OpenShmDoor, nullptr};
static_assert(std::size(kRows) == std::size(kOpen));

}  // namespace

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
  const std::string names = absl::StrJoin(DoorsOfThisBuild(), ", ");
  const auto row = std::find_if(
      std::begin(kRows), std::end(kRows),
      [&](const DoorRow& candidate) { return name == candidate.name; });
  if (row == std::end(kRows)) {
    return InvalidField("door", name, names);
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
