#include "server/calls/upload_slots.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

constexpr int64_t kRetryMs = 50;

bool MaySendTensors(const Identity& identity) {
  return identity.May("Attend") || identity.May("AttendStream") ||
         identity.May("ModelInfer");
}

}  // namespace

void UploadSlots::SetIdentities(
    const std::vector<std::shared_ptr<const Identity>>& identities) {
  double weights = 0;
  for (const auto& identity : identities) {
    if (MaySendTensors(*identity)) weights += identity->weight;
  }
  const int64_t half = capacity_ / 2;
  const auto to_keep = static_cast<double>(half);
  std::lock_guard lock(mu_);
  for (auto& [name, share] : shares_) share.due = 0;
  for (const auto& identity : identities) {
    if (!MaySendTensors(*identity)) continue;
    const double due = to_keep * identity->weight / weights;
    shares_[identity->name].due =
        std::max<int64_t>(static_cast<int64_t>(due), 1);
  }
  kept_ = 0;
  for (auto it = shares_.begin(); it != shares_.end();) {
    kept_ += it->second.unused();
    it = it->second.due == 0 && it->second.held == 0 ? shares_.erase(it)
                                                     : std::next(it);
  }
}

absl::Status UploadSlots::Take(const std::string& identity) {
  std::lock_guard lock(mu_);
  Share& share = shares_[identity];
  const int64_t own = share.unused();
  // What is kept for others; all of it may be more than there is.
  const int64_t room = capacity_ - taken_ - (own > 0 ? 0 : kept_);
  if (room > 0) {
    ++taken_;
    ++share.held;
    if (own > 0) --kept_;
    return absl::OkStatus();
  }
  if (taken_ >= capacity_) {
    return Overloaded("uploads", absl::StrCat(taken_.load() + 1),
                      absl::StrCat("at most ", capacity_), kRetryMs);
  }
  return Overloaded(absl::StrCat("uploads of '", identity, "'"),
                    absl::StrCat(share.held + 1),
                    absl::StrCat("at most ", share.held, " now: of ", capacity_,
                                 ", ", kept_, " are kept for others"),
                    kRetryMs);
}

void UploadSlots::Release(const std::string& identity) {
  std::lock_guard lock(mu_);
  const auto found = shares_.find(identity);
  Share& share = found->second;
  --taken_;
  --share.held;
  if (share.held < share.due) ++kept_;
  if (share.held == 0 && share.due == 0) shares_.erase(found);
}

absl::Status UploadPlace::Take(UploadSlots* slots,
                               const std::string& identity) {
  absl::Status status = slots->Take(identity);
  if (!status.ok()) return status;
  identity_ = identity;
  slots_ = slots;
  return status;
}

void UploadPlace::Release() {
  if (UploadSlots* slots = slots_.exchange(nullptr)) slots->Release(identity_);
}

}  // namespace attendant::server
