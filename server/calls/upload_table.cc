#include "server/calls/upload_table.h"

#include <sys/random.h>

namespace attendant::server {

absl::StatusOr<std::string> UploadTable::NewId() {
  constexpr size_t kIdBytes = 16;
  std::string id(kIdBytes, '\0');
  if (getrandom(id.data(), id.size(), 0) != static_cast<ssize_t>(id.size())) {
    return absl::InternalError("the system gives no random bytes");
  }
  return id;
}

void UploadTable::Add(const std::shared_ptr<Upload>& upload) {
  std::lock_guard lock(mu_);
  uploads_[upload->id()] = upload;
}

void UploadTable::Remove(const std::string& id) {
  std::lock_guard lock(mu_);
  uploads_.erase(id);
}

absl::StatusOr<std::shared_ptr<Upload>> UploadTable::Find(
    const std::string& id, const std::string& owner) const {
  std::shared_ptr<Upload> upload;
  {
    std::lock_guard lock(mu_);
    const auto found = uploads_.find(id);
    if (found != uploads_.end()) upload = found->second.lock();
  }
  if (upload != nullptr && upload->owner() == owner) return upload;
  return NoSuchUpload();
}

int64_t UploadTable::size() const {
  std::lock_guard lock(mu_);
  return static_cast<int64_t>(uploads_.size());
}

}  // namespace attendant::server
