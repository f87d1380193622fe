// Which allocation of the GPU a pointer lies in, and how another process gets
// at it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "client/cpp/cuda/driver.h"

namespace attendant::client::cuda {

struct Allocation {
  enum class Export {
    kNone,  // `why_not` says why
    kIpc,   // from cudaMalloc: by ExportIpc
    kVmm,   // from cuMemCreate, mapped whole: by ExportVmm
  };
  std::byte* base = nullptr;
  int64_t bytes = 0;
  // Never the same for two allocations of a process, also if the second lies
  // where the first did.
  uint64_t id = 0;
  int device = 0;
  Export export_by = Export::kNone;
  std::string why_not;

  bool operator==(const Allocation& other) const {
    return base == other.base && bytes == other.bytes && id == other.id &&
           device == other.device;
  }
};

// None for memory of the host, pinned or not. About a microsecond.
std::optional<Allocation> AllocationOf(const Driver& driver,
                                       const void* pointer);

// Allocation::id of the memory at `pointer`; 0 = none.
uint64_t BufferIdOf(const Driver& driver, const void* pointer);

inline constexpr char kSeveralPieces[] =
    "mapped memory of several pieces (PyTorch's expandable segments)";

// FAILED_PRECONDITION, naming `field`, for memory that cannot be exported: what
// it is and what to use instead.
absl::Status CheckExportable(const std::string& field,
                             const Allocation& allocation);

// A cudaIpcMemHandle_t for `allocation`.
absl::StatusOr<std::string> ExportIpc(const Driver& driver,
                                      const Allocation& allocation);
// A descriptor for `allocation`, which the caller closes.
absl::StatusOr<int> ExportVmm(const Driver& driver,
                              const Allocation& allocation);

}  // namespace attendant::client::cuda
