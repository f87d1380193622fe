#include "server/engine/host_memory_pool.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/range_pool.h"

namespace attendant::server {
namespace {

// Counts one reference for the engine's handle and one for each block, so that
// the memory outlives both.
class FixedPool final : public HostMemoryPool {
 public:
  FixedPool(std::byte* memory, int64_t bytes, std::shared_ptr<void> owner,
            bool scrub)
      : memory_(memory),
        ranges_(bytes),
        owner_(std::move(owner)),
        scrub_(scrub) {}

  absl::StatusOr<HostBlock> Allocate(int64_t bytes) override {
    if (bytes == 0) return HostBlock(nullptr, memory_, 0);
    const auto offset = ranges_.Allocate(bytes);
    if (!offset.has_value()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the host memory pool has no ", bytes,
                       " bytes in one piece left (", ranges_.used_bytes(),
                       " of ", ranges_.capacity_bytes(), " bytes are in use)"));
    }
    references_.fetch_add(1);
    return HostBlock(this, memory_ + *offset, bytes);
  }
  int64_t capacity_bytes() const override { return ranges_.capacity_bytes(); }
  int64_t used_bytes() const override { return ranges_.used_bytes(); }

  void Unreference() {
    if (references_.fetch_sub(1) == 1) delete this;
  }

 private:
  void Release(std::byte* data, int64_t bytes) override {
    if (scrub_) std::memset(data, 0, static_cast<size_t>(bytes));
    ranges_.Release(data - memory_, bytes);
    Unreference();
  }

  std::byte* const memory_;
  RangePool ranges_;
  const std::shared_ptr<void> owner_;
  const bool scrub_;
  std::atomic<int64_t> references_{1};
};

// The engine's handle of a FixedPool.
class PoolHandle final : public HostMemoryPool {
 public:
  explicit PoolHandle(FixedPool* pool) : pool_(pool) {}
  ~PoolHandle() override { pool_->Unreference(); }

  absl::StatusOr<HostBlock> Allocate(int64_t bytes) override {
    return pool_->Allocate(bytes);
  }
  int64_t capacity_bytes() const override { return pool_->capacity_bytes(); }
  int64_t used_bytes() const override { return pool_->used_bytes(); }

 private:
  void Release(std::byte*, int64_t) override {}  // blocks name the FixedPool

  FixedPool* const pool_;
};

}  // namespace

std::unique_ptr<HostMemoryPool> MakeHostPool(std::byte* memory, int64_t bytes,
                                             std::shared_ptr<void> owner,
                                             bool scrub) {
  return std::make_unique<PoolHandle>(
      new FixedPool(memory, bytes, std::move(owner), scrub));
}

absl::StatusOr<std::unique_ptr<HostMemoryPool>> CreatePlainHostPool(
    int64_t bytes, bool scrub) {
  void* memory =
      mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the system gives no ", bytes, " bytes for the host memory pool"));
  }
  // A CPU's kernels read tensors as fast as memory gives them, which is slower
  // where each small page has to be looked up. Advice: what the system makes of
  // it is its affair.
  madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  std::shared_ptr<void> owner(memory, [bytes](void* pages) {
    munmap(pages, static_cast<size_t>(bytes));
  });
  return MakeHostPool(static_cast<std::byte*>(memory), bytes, std::move(owner),
                      scrub);
}

}  // namespace attendant::server
