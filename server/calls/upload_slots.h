// Places for calls whose body may be on its way, shared out by identity.
//
// Half of them are kept: each identity of the policy has its share of that half
// by weight, one at least, and finds it free whatever the others do. The rest,
// and what an identity holds beyond its own, is whoever's comes first. So one
// identity alone fills all but what is kept for the others, and nobody starves
// while there are as many places as identities.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/access/access_policy.h"

namespace attendant::server {

// Thread-safe.
class UploadSlots {
 public:
  // Nothing is kept for anybody until there are identities.
  explicit UploadSlots(int64_t capacity) : capacity_(capacity) {}

  // Those of the policy in force; who may send no tensors is due nothing. What
  // is held stays held.
  void SetIdentities(
      const std::vector<std::shared_ptr<const Identity>>& identities);

  // RESOURCE_EXHAUSTED, with a retry hint, if there is no place for `identity`.
  absl::Status Take(const std::string& identity);
  // Once for every Take that was OK.
  void Release(const std::string& identity);

  int64_t taken() const { return taken_; }

 private:
  struct Share {
    int64_t due = 0;
    int64_t held = 0;
    int64_t unused() const { return held < due ? due - held : 0; }
  };

  const int64_t capacity_;
  std::atomic<int64_t> taken_{0};  // changed with mu_ held
  std::mutex mu_;
  std::map<std::string, Share> shares_;  // guarded by mu_, as the next
  int64_t kept_ = 0;                     // unused() of all together
};

// A call's place, given back by Release or with this object.
class UploadPlace {
 public:
  UploadPlace() = default;
  ~UploadPlace() { Release(); }
  UploadPlace(const UploadPlace&) = delete;
  UploadPlace& operator=(const UploadPlace&) = delete;

  // As UploadSlots::Take, once. `slots` outlives this.
  absl::Status Take(UploadSlots* slots, const std::string& identity);
  // Any thread, any number of times.
  void Release();

 private:
  std::string identity_;
  std::atomic<UploadSlots*> slots_{nullptr};  // null = no place
};

}  // namespace attendant::server
