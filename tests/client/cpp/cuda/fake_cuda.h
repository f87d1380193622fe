// A CUDA driver whose GPU memory is this process's own: for tests on machines
// without a GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "client/cpp/cuda/driver.h"

namespace attendant::client::cuda {

// One at a time. Not for what is enqueued: every stream is done at once.
class FakeCuda {
 public:
  enum class Kind { kMalloc, kPool, kManaged, kSegments };

  FakeCuda();
  ~FakeCuda();
  FakeCuda(const FakeCuda&) = delete;
  FakeCuda& operator=(const FakeCuda&) = delete;

  const Driver& driver() const { return driver_; }

  std::byte* Allocate(int64_t bytes, Kind kind = Kind::kMalloc);
  void Free(std::byte* base);
  // Freed, and the same place given out again.
  void Reuse(std::byte* base);

  // What a handle of ExportIpc names; null for memory that is there no more.
  std::byte* Open(const std::string& handle) const;
  int64_t allocations() const;
  std::vector<Stream> synchronized() const;  // streams, in order

  static constexpr char kUuid[] = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

 private:
  friend struct FakeCalls;
  struct Memory {
    int64_t bytes = 0;
    uint64_t id = 0;
    Kind kind = Kind::kMalloc;
  };

  Driver driver_;
  mutable std::mutex mutex_;             // guards what follows
  std::map<std::byte*, Memory> memory_;  // by base
  uint64_t next_id_ = 1;
  std::vector<Stream> synchronized_;
};

}  // namespace attendant::client::cuda
