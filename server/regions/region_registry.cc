#include "server/regions/region_registry.h"

#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

constexpr std::chrono::seconds kLookPeriod{1};

absl::Status NoSuchRegion(const std::string& field) {
  constexpr char kBound[] = "the name of a region of this owner";
  return WithDetail(
      absl::NotFoundError(absl::StrCat(field, " is unknown, must be ", kBound)),
      field, "unknown", kBound);
}

}  // namespace

const char* RegionKindName(RegionKind kind) {
  switch (kind) {
    case RegionKind::kHostBuffer:
      return "host_buffer";
    case RegionKind::kDeviceBuffer:
      return "device_buffer";
    case RegionKind::kMemfd:
      return "memfd";
    case RegionKind::kPosix:
      return "posix";
    case RegionKind::kCudaIpc:
      return "cuda_ipc";
    case RegionKind::kCudaVmm:
      return "cuda_vmm";
  }
  return "?";
}

// What is taken of the bounds. Thread-safe.
class RegionRegistry::Ledger {
 public:
  explicit Ledger(const Bounds& bounds) : bounds_(bounds) {}

  absl::Status Take(const std::string& owner, RegionKind kind, int64_t bytes) {
    std::lock_guard lock(mu_);
    Sum& own = owners_[owner];
    absl::Status status = Check(own, bytes);
    if (!status.ok()) {
      if (own.regions == 0) owners_.erase(owner);
      return status;
    }
    for (Sum* sum : {&all_, &own}) {
      sum->regions += 1;
      sum->bytes += bytes;
    }
    counts_.regions[static_cast<int>(kind)] += 1;
    counts_.bytes[static_cast<int>(kind)] += bytes;
    return absl::OkStatus();
  }

  void Return(const std::string& owner, RegionKind kind, int64_t bytes) {
    std::lock_guard lock(mu_);
    const auto own = owners_.find(owner);
    for (Sum* sum : {&all_, &own->second}) {
      sum->regions -= 1;
      sum->bytes -= bytes;
    }
    if (own->second.regions == 0) owners_.erase(own);
    counts_.regions[static_cast<int>(kind)] -= 1;
    counts_.bytes[static_cast<int>(kind)] -= bytes;
  }

  RegionCounts Counts() const {
    std::lock_guard lock(mu_);
    return counts_;
  }

 private:
  struct Sum {
    int64_t regions = 0;
    int64_t bytes = 0;
  };

  absl::Status Check(const Sum& own, int64_t bytes) const {
    constexpr int64_t kRetryMs = 1000;
    const auto reached = [&](const char* what, int64_t used, int64_t bound,
                             const char* name) {
      return Overloaded(what, absl::StrCat(used),
                        absl::StrCat("at most ", bound, " (", name, ")"),
                        kRetryMs);
    };
    if (own.regions + 1 > bounds_.max_regions_per_owner) {
      return reached("regions of this owner, with this one", own.regions + 1,
                     bounds_.max_regions_per_owner, "max_regions_per_owner");
    }
    if (bytes > bounds_.max_region_bytes_per_owner - own.bytes) {
      return reached("bytes of this owner, without this region's", own.bytes,
                     bounds_.max_region_bytes_per_owner - bytes,
                     "max_region_bytes_per_owner");
    }
    if (all_.regions + 1 > bounds_.max_regions) {
      return reached("regions in all, with this one", all_.regions + 1,
                     bounds_.max_regions, "max_regions");
    }
    if (bytes > bounds_.max_region_bytes - all_.bytes) {
      return reached("region bytes in all, without this region's", all_.bytes,
                     bounds_.max_region_bytes - bytes, "max_region_bytes");
    }
    return absl::OkStatus();
  }

  const Bounds bounds_;
  mutable std::mutex mu_;  // guards what follows
  Sum all_;
  std::unordered_map<std::string, Sum> owners_;
  RegionCounts counts_;
};

// A share of the bounds and the memory it is for; the memory goes first.
class RegionRegistry::Share {
 public:
  Share(std::shared_ptr<Ledger> ledger, std::string owner, RegionKind kind,
        int64_t bytes)
      : ledger_(std::move(ledger)),
        owner_(std::move(owner)),
        kind_(kind),
        bytes_(bytes) {}
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;
  ~Share() {
    memory_.reset();
    ledger_->Return(owner_, kind_, bytes_);
  }

  RegionMemory* Hold(std::unique_ptr<RegionMemory> memory) {
    memory_ = std::move(memory);
    return memory_.get();
  }

 private:
  const std::shared_ptr<Ledger> ledger_;
  const std::string owner_;
  const RegionKind kind_;
  const int64_t bytes_;
  std::unique_ptr<RegionMemory> memory_;
};

RegionRegistry::RegionRegistry(const Bounds& bounds, std::function<Time()> now)
    : bounds_(bounds),
      now_(std::move(now)),
      ledger_(std::make_shared<Ledger>(bounds)),
      last_look_(now_()) {}

absl::StatusOr<RegionEntry> RegionRegistry::Add(const std::string& owner,
                                                RegionKind kind, int64_t bytes,
                                                bool expires,
                                                const MakeMemory& make) {
  RETURN_IF_ERROR(CheckRegionOwner(owner));
  const int64_t most =
      std::min(bounds_.max_region_bytes, bounds_.max_region_bytes_per_owner);
  if (bytes <= 0 || bytes > most) {
    return InvalidField(
        "byte_length", absl::StrCat(bytes),
        absl::StrCat("1..", most, " (max_region_bytes_per_owner)"));
  }
  List(owner);  // lets go of what has expired
  RETURN_IF_ERROR(ledger_->Take(owner, kind, bytes));
  const auto share = std::make_shared<Share>(ledger_, owner, kind, bytes);
  ASSIGN_OR_RETURN(std::unique_ptr<RegionMemory> memory, make());
  Record record{
      owner, kind,
      std::shared_ptr<RegionMemory>(share, share->Hold(std::move(memory))),
      expires, now_()};
  const std::string name = RandomRegionName();
  if (name.empty()) {
    return absl::UnavailableError("the system gives no random bytes");
  }
  RegionEntry entry{name, kind, record.memory, 0};
  std::lock_guard lock(mu_);
  records_.emplace(name, std::move(record));
  return entry;
}

absl::StatusOr<RegionEntry> RegionRegistry::Find(const std::string& owner,
                                                 const std::string& name,
                                                 const std::string& field) {
  std::lock_guard lock(mu_);
  const auto found = records_.find(name);
  if (found == records_.end() || found->second.owner != owner) {
    return NoSuchRegion(field);
  }
  found->second.last_used = now_();
  return Describe(*found);
}

absl::Status RegionRegistry::Release(const std::string& owner,
                                     const std::string& name) {
  // Declared first, so that it is dropped after the lock.
  std::shared_ptr<RegionMemory> memory;
  std::lock_guard lock(mu_);
  const auto found = records_.find(name);
  if (found == records_.end() || found->second.owner != owner) {
    return NoSuchRegion("name");
  }
  memory = std::move(found->second.memory);
  records_.erase(found);
  return absl::OkStatus();
}

std::vector<RegionEntry> RegionRegistry::List(const std::string& owner) {
  std::vector<std::shared_ptr<RegionMemory>> expired;
  std::vector<RegionEntry> entries;
  {
    std::lock_guard lock(mu_);
    expired = TakeExpired();
    for (const auto& record : records_) {
      if (record.second.owner == owner) entries.push_back(Describe(record));
    }
  }
  return entries;
}

void RegionRegistry::Clear() {
  Records records;
  std::lock_guard lock(mu_);
  records.swap(records_);
}

RegionCounts RegionRegistry::Counts() const { return ledger_->Counts(); }

std::vector<std::shared_ptr<RegionMemory>> RegionRegistry::TakeExpired() {
  std::vector<std::shared_ptr<RegionMemory>> expired;
  const Time now = now_();
  if (now - last_look_ < kLookPeriod) return expired;
  last_look_ = now;
  const std::chrono::seconds idle(bounds_.region_idle_seconds);
  for (auto at = records_.begin(); at != records_.end();) {
    Record& record = at->second;
    // Whoever holds it now uses it.
    if (record.memory.use_count() > 1) record.last_used = now;
    if (!record.expires || now - record.last_used < idle) {
      ++at;
      continue;
    }
    expired.push_back(std::move(record.memory));
    at = records_.erase(at);
  }
  return expired;
}

RegionEntry RegionRegistry::Describe(const Records::value_type& record) {
  return {record.first, record.second.kind, record.second.memory,
          record.second.memory.use_count() - 1};
}

std::string RandomRegionName() {
  unsigned char bytes[16];
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return "";
  std::string name;
  for (const unsigned char byte : bytes) {
    name += "0123456789abcdef"[byte >> 4];
    name += "0123456789abcdef"[byte & 15];
  }
  return name;
}

absl::Status CheckRegionOwner(const std::string& owner) {
  const bool printable = std::all_of(owner.begin(), owner.end(), [](char c) {
    return c >= 0x20 && c <= 0x7e;
  });
  if (printable && owner.size() >= 32 && owner.size() <= 128) {
    return absl::OkStatus();
  }
  // Not the value: it may be a secret with a typing error.
  return InvalidField(
      kRegionOwnerMetadata, absl::StrCat(owner.size(), " characters"),
      "metadata of 32..128 printable ASCII characters that nobody can guess");
}

}  // namespace attendant::server
