// Uploads under way, by the id that further streams join with.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "server/calls/upload.h"

namespace attendant::server {

// Thread-safe.
class UploadTable {
 public:
  // 16 bytes from the system's random source: who was not told cannot guess.
  static absl::StatusOr<std::string> NewId();

  void Add(const std::shared_ptr<Upload>& upload);
  void Remove(const std::string& id);
  // NOT_FOUND if `owner` has none; the text does not repeat the id.
  absl::StatusOr<std::shared_ptr<Upload>> Find(const std::string& id,
                                               const std::string& owner) const;
  int64_t size() const;

 private:
  mutable std::mutex mu_;
  std::map<std::string, std::weak_ptr<Upload>> uploads_;  // guarded by mu_
};

}  // namespace attendant::server
