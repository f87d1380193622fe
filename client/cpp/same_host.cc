#include "client/cpp/same_host.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/door.h"
#include "client/cpp/region_socket.h"
#include "client/cpp/server_list.h"
#include "client/cpp/shared_tensors.h"

namespace attendant::client {

absl::StatusOr<SameHostClient> ConnectSameHost(
    std::string_view door, const std::string& target,
    const ClientOptions& options,
    std::chrono::steady_clock::time_point deadline) {
  absl::Status status = CheckDoorBalances(std::string(door), target, options);
  if (!status.ok()) return status;
  ClientOptions with_owner = options;
  if (with_owner.region_owner.empty()) {
    with_owner.region_owner = RandomRegionOwner();
  }
  if (with_owner.busy_poll.count() > 0) {
    with_owner.busy_poll = std::max(with_owner.busy_poll, kSameHostBusyPoll);
  }
  absl::StatusOr<Client> client = Client::Create(target, with_owner);
  if (!client.ok()) return client.status();
  absl::StatusOr<ServerInfo> info =
      client->GetServerInfo(std::min<std::chrono::milliseconds>(
          PatienceUntil(deadline), std::chrono::seconds(10)));
  if (!info.ok()) {
    return absl::Status(info.status().code(),
                        absl::StrCat("door '", std::string(door),
                                     "': ", info.status().message()));
  }
  return SameHostClient{*std::move(client), std::move(with_owner.region_owner),
                        *std::move(info)};
}

}  // namespace attendant::client
