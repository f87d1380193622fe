// Who has which regions: names, owners, bounds, lives.
//
// A region is in the registry from Add to Release; its memory and its share of
// the bounds last until nobody holds it any more, so that a release never pulls
// memory from under a request and never lets anyone beyond the bounds either.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/regions/region_memory.h"
#include "server/request/bounds.h"

namespace attendant::server {

struct RegionEntry {
  std::string name;  // the owner's secret
  RegionKind kind = RegionKind::kHostBuffer;
  std::shared_ptr<RegionMemory> memory;
  int64_t uses = 0;  // requests and transfers that hold it
};

// By RegionKind.
struct RegionCounts {
  std::array<int64_t, kNumRegionKinds> regions{};
  std::array<int64_t, kNumRegionKinds> bytes{};
};

// Thread-safe.
class RegionRegistry {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using MakeMemory =
      std::function<absl::StatusOr<std::unique_ptr<RegionMemory>>()>;

  // Bounds: the region fields of `bounds`.
  explicit RegionRegistry(
      const Bounds& bounds, std::function<Time()> now = [] {
        return std::chrono::steady_clock::now();
      });

  // Takes `bytes` (> 0) of the bounds, calls `make` with no lock held, and
  // gives the region a name. `expires`: it is released when nobody used it for
  // region_idle_seconds. Errors: INVALID_ARGUMENT (bytes), RESOURCE_EXHAUSTED
  // (a bound is reached; naming it), `make`'s.
  absl::StatusOr<RegionEntry> Add(const std::string& owner, RegionKind kind,
                                  int64_t bytes, bool expires,
                                  const MakeMemory& make);

  // NOT_FOUND, in the same words, if there is no such name and if it is
  // somebody else's. The text does not repeat the name. `field` is the
  // detail's.
  absl::StatusOr<RegionEntry> Find(const std::string& owner,
                                   const std::string& name,
                                   const std::string& field);
  absl::Status Release(const std::string& owner, const std::string& name);
  std::vector<RegionEntry> List(const std::string& owner);

  // Releases everything, when no call can come any more.
  void Clear();

  // Of all memory that is still held, released or not.
  RegionCounts Counts() const;

 private:
  class Ledger;
  class Share;
  struct Record {
    std::string owner;
    RegionKind kind;
    std::shared_ptr<RegionMemory> memory;
    bool expires = false;
    Time last_used;
  };
  using Records = std::unordered_map<std::string, Record>;

  // Moves what expired out of the map (mu_ held); the caller drops it with no
  // lock held, as giving memory back takes time.
  std::vector<std::shared_ptr<RegionMemory>> TakeExpired();
  static RegionEntry Describe(const Records::value_type& record);

  const Bounds bounds_;
  const std::function<Time()> now_;
  const std::shared_ptr<Ledger> ledger_;  // outlives this: regions hold it
  std::mutex mu_;
  Records records_;  // guarded by mu_
  Time last_look_;   // guarded by mu_
};

// 128 random bits in hexadecimal; empty if the system gives none.
std::string RandomRegionName();

// INVALID_ARGUMENT unless 32 to 128 printable ASCII characters.
absl::Status CheckRegionOwner(const std::string& owner);
inline constexpr char kRegionOwnerMetadata[] = "attendant-owner";

}  // namespace attendant::server
