#include "client/cpp/cli/door_flags.h"

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/door_chooser.h"
#include "client/cpp/server_list.h"
#include "client/cpp/shm_door.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"door", "auto|unary|stream|striped|shm|ipc", "how tensors travel [auto]"}};

}  // namespace

std::span<const FlagSpec> DoorFlags() { return kFlags; }

absl::Status CheckDoorName(const std::string& name) {
  std::string names = "auto";
  if (name == names) return absl::OkStatus();
  for (const DoorRow& row : DoorRows()) {
    if (name == row.name) return absl::OkStatus();
    absl::StrAppend(&names, ", ", row.name);
  }
  return InvalidField("--door", name, names);
}

std::string ResolveDoor(const std::string& name, const std::string& target,
                        const ClientOptions& options, int64_t request_bytes) {
  if (name != "auto") return name;
  const bool balanced = IsBalanced(target, options);
  DoorSituation situation;
  situation.same_host = !balanced && IsSameHost(target);
  situation.request_bytes = request_bytes;
  situation.offered = DoorsOfThisBuild();
  if (!situation.same_host || !ServerSharesMemory(target, options)) {
    std::erase(situation.offered, "shm");
  }
  if (balanced) std::erase(situation.offered, "striped");
  return ChooseDoor(situation);
}

int64_t TensorBytesOf(const AttendArgs& args) {
  int64_t bytes = 0;
  for (const TensorView* view : {&args.q, &args.k, &args.v, &args.qkv}) {
    const absl::StatusOr<int64_t> elements = NumElements(view->shape);
    if (view->given() && elements.ok()) {
      bytes += NumBytes(view->dtype, *elements);
    }
  }
  return bytes;
}

}  // namespace attendant::client::cli
