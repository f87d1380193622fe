// Memory that caller and server share, for tensors that need not travel: a
// sealed memfd, handed to a server of the same machine over its region socket.
//
//   auto shared = SharedTensors::Create(info.region_socket, owner, bytes);
//   std::byte* q = (*shared)->Allocate(q_bytes);       // fill it; k, v, out
//   too args.q.data = q; args.shared = {(*shared)->range()};
//
// with a Client whose ClientOptions::region_owner is `owner`.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"

namespace attendant::client {

class RegionSocket;

// Not thread-safe but for range(). The server lets go of the memory when this
// object goes, or its process.
class SharedTensors {
 public:
  // Errors: UNAVAILABLE if nobody listens at the socket; the server's;
  // RESOURCE_EXHAUSTED if the system gives no memory. The server is not waited
  // for beyond `deadline` or 60 s.
  static absl::StatusOr<std::unique_ptr<SharedTensors>> Create(
      const std::string& region_socket, const std::string& owner, int64_t bytes,
      std::chrono::steady_clock::time_point deadline =
          std::chrono::steady_clock::time_point::max());
  ~SharedTensors();

  // Aligned to what a region asks for; null if there is no room left.
  std::byte* Allocate(int64_t bytes);
  // Forgets what was allocated; the memory stays.
  void Reset() { used_ = 0; }

  int64_t bytes() const { return range_.bytes; }
  const SharedRange& range() const { return range_; }

 private:
  SharedTensors();
  absl::Status MakeMemory(int64_t bytes, int* memfd);
  absl::Status Register(const std::string& region_socket,
                        const std::string& owner, int memfd,
                        std::chrono::steady_clock::time_point deadline);

  SharedRange range_;
  int64_t used_ = 0;
  std::unique_ptr<RegionSocket> socket_;
};

// One packet to a server's region socket, with a descriptor unless it is -1:
// the bytes of a RegionDoorRequest, and those of its RegionDoorReply. For what
// SharedTensors does not do (CUDA VMM handles). UNAVAILABLE if the server hung
// up.
absl::StatusOr<std::string> AskRegionDoor(int socket,
                                          const std::string& request,
                                          int descriptor);

// 128 random bits in hexadecimal: an owner that nobody can guess.
std::string RandomRegionOwner();

}  // namespace attendant::client
