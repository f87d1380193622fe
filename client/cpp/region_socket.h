// A connection to a server's region socket, which takes descriptors of memory.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "attendant/v1/region.pb.h"

namespace attendant::client {

// What is left until `deadline`: 1 ms at least, since a socket would take none
// for ever; a minute at most.
std::chrono::milliseconds PatienceUntil(
    std::chrono::steady_clock::time_point deadline);

// Thread-safe. Regions that came by it end when it goes.
class RegionSocket {
 public:
  // Tells the server who asks. Errors: INVALID_ARGUMENT for no path of a
  // socket; UNAVAILABLE if nobody listens there, or nothing comes back for
  // `patience` (> 0), here or later; the server's.
  static absl::StatusOr<std::unique_ptr<RegionSocket>> Connect(
      const std::string& path, const std::string& owner,
      std::chrono::milliseconds patience = std::chrono::seconds(60));
  ~RegionSocket();

  // From now on (> 0).
  void SetPatience(std::chrono::milliseconds patience);

  // `descriptor` -1 = none; it stays the caller's. UNAVAILABLE if the server
  // hung up or gave no answer, which ends the connection; the server's errors.
  absl::StatusOr<v1::RegionDoorReply> Ask(const v1::RegionDoorRequest& request,
                                          int descriptor = -1);

 private:
  explicit RegionSocket(int socket) : socket_(socket) {}

  const int socket_;
  std::mutex mutex_;  // one request at a time
};

}  // namespace attendant::client
