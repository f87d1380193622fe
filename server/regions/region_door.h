// The unix socket that callers pass memory over as file descriptors.
//
// One thread serves all connections. A connection's regions end with it: when
// the process at the other end dies, the kernel closes its socket.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/region.pb.h"
#include "server/connections/unique_fd.h"
#include "server/regions/region_makers.h"
#include "server/regions/region_registry.h"

namespace attendant::server {

class RegionDoor {
 public:
  using Describe = std::function<v1::RegionStatus(const RegionEntry&)>;

  // Listens at options.socket, replacing a socket there that nobody listens at.
  // UNAVAILABLE if it can't be bound. All pointers outlive it.
  static absl::StatusOr<std::unique_ptr<RegionDoor>> Start(
      const RegionOptions& options, const RegionMakers* makers,
      RegionRegistry* registry, Describe describe);
  // Closes every connection and removes the socket.
  ~RegionDoor();

 private:
  struct Connection {
    UniqueFd fd;
    std::string owner;  // empty until Open
    std::vector<std::string> regions;
  };

  RegionDoor(const RegionOptions& options, const RegionMakers* makers,
             RegionRegistry* registry, Describe describe);
  absl::Status Listen();
  void Run();
  void Accept();
  // False if the connection is over.
  bool Serve(Connection* connection);
  v1::RegionDoorReply Answer(const v1::RegionDoorRequest& request,
                             std::vector<UniqueFd> descriptors,
                             Connection* connection);
  absl::StatusOr<RegionEntry> Register(const v1::RegionDoorRequest& request,
                                       UniqueFd descriptor,
                                       const Connection& connection);
  absl::Status Release(const std::string& name, Connection* connection);
  void Close(Connection* connection);
  bool MayEnter(int fd) const;

  const RegionOptions options_;
  const RegionMakers* const makers_;
  RegionRegistry* const registry_;
  const Describe describe_;
  UniqueFd listener_;
  UniqueFd stop_;                                         // an eventfd
  std::vector<std::unique_ptr<Connection>> connections_;  // the thread's
  std::thread thread_;
};

}  // namespace attendant::server
