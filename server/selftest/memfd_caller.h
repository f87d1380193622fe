// The other end of a region socket: a caller with a sealed memfd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "attendant/v1/region.pb.h"
#include "server/connections/unique_fd.h"

namespace attendant::server {

class MemfdCaller {
 public:
  // Errors: the door's, and RESOURCE_EXHAUSTED where the system refuses.
  static absl::StatusOr<std::unique_ptr<MemfdCaller>> Create(
      const std::string& socket, const std::string& owner, int64_t bytes);
  ~MemfdCaller();

  std::byte* data() const { return data_; }
  const std::string& region_name() const { return name_; }

 private:
  MemfdCaller() = default;
  absl::StatusOr<v1::RegionDoorReply> Ask(const v1::RegionDoorRequest& request,
                                          int descriptor);

  UniqueFd socket_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  std::string name_;
};

}  // namespace attendant::server
