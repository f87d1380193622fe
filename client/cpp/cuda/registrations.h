// Which memory of this process on the GPU the server has as a region: exported
// when a call first names it, and kept for the calls after it.
//
// Never stale: an allocation is known by its base, its size and the driver's id
// of it, asked anew for every call. Memory that was freed and given out again
// has another id, and is exported again. At most kMost allocations are kept;
// the one that was not used for longest goes first.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/cuda/allocation.h"
#include "client/cpp/cuda/driver.h"
#include "client/cpp/region_socket.h"

namespace attendant::client::cuda {

// Thread-safe.
class Registrations {
 public:
  static constexpr size_t kMost = 64;
  using SteadyTime = std::chrono::steady_clock::time_point;

  struct Options {
    const Driver* driver = nullptr;  // outlives this, as does
    const Client* client = nullptr;  // with the region_owner `owner`
    std::string owner;
    bool takes_ipc = false;  // the server's region kinds
    bool takes_vmm = false;
    std::string region_socket;
    std::string ready_event;  // a cudaIpcEventHandle_t, or empty
  };
  explicit Registrations(Options options);
  ~Registrations();

  // One region at the server, released when nobody holds it any more.
  class Region;
  using Held = std::shared_ptr<const Region>;

  // The region that `pointer` lies in, if its memory is still the one that was
  // exported; null = Hold it. The quick way of most calls.
  // By `deadline`, as the next.
  Held Find(const void* pointer, SteadyTime deadline);
  // The region of the allocation. Errors: CheckExportable's, naming `field`;
  // UNIMPLEMENTED if the server does not take its kind; the server's;
  // DEADLINE_EXCEEDED while others register something, UNAVAILABLE if the
  // server says nothing.
  absl::StatusOr<Held> Hold(const std::string& field,
                            const Allocation& allocation, SteadyTime deadline);
  // Drops all: the server has them no more (it was restarted, or forgot what
  // was not used for long).
  void Forget();
  // The allocation at `base` is about to be freed.
  void Drop(const std::byte* base);
  // After a call that ended without the server's word: drops these, and waits
  // until the server uses them no more, `patience` at most.
  void Abandon(const std::vector<Held>& held,
               std::chrono::milliseconds patience = std::chrono::seconds(10));

  static const SharedRange& RangeOf(const Region& region);
  static const Allocation& MemoryOf(const Region& region);
  size_t size() const;

 private:
  absl::StatusOr<Held> Register(const Allocation& allocation,
                                SteadyTime deadline);
  absl::StatusOr<std::string> RegisterIpc(const Allocation& allocation,
                                          SteadyTime deadline);
  absl::StatusOr<std::string> RegisterVmm(const Allocation& allocation,
                                          SteadyTime deadline);
  absl::StatusOr<v1::RegionDoorReply> AskSocket(
      const v1::RegionDoorRequest& request, int descriptor,
      SteadyTime deadline);

  const Options options_;
  mutable std::timed_mutex mutex_;  // guards what follows
  std::list<Held> known_;           // the last used first
  std::shared_ptr<RegionSocket> socket_;
};

}  // namespace attendant::client::cuda
