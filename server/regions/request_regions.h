// The regions of one Attend: looked up, checked, and every tensor placed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attendant/v1/attention.pb.h"
#include "server/regions/region_registry.h"
#include "server/request/problem_validator.h"

namespace attendant::server {

// True if `request` names a region anywhere.
bool NamesRegions(const v1::AttendRequest& request);

// Fills in the places of `request`, validated from `header`, and lays its
// blocks out anew: first what is copied through the host's block, then what
// only the device needs room for, nothing for what the kernel finds in place.
// `on_gpu`: the engine computes on a device of its own. The request then holds
// its regions. Errors: NOT_FOUND (no region of this owner); INVALID_ARGUMENT
// (outside the region, an output in one that is read-only or where the request
// reads); UNIMPLEMENTED (a conversion of dtypes out of device memory).
absl::Status PlaceRegions(const std::string& owner,
                          const v1::AttendRequest& header, bool on_gpu,
                          RegionRegistry* registry, ValidatedRequest* request);

// UNIMPLEMENTED for a region that a stream cannot use where it lies: what has
// to be copied (POSIX names, masks, converted dtypes), what has an event to
// wait for. Those go by Attend.
absl::Status CheckStreamRegions(const ValidatedRequest& request);

// A part of an output that the job's block has and its region has not.
struct StagedOutput {
  const TensorPlace* place = nullptr;
  int64_t region_offset = 0;
  int64_t block_offset = 0;
  int64_t bytes = 0;
};
// In pieces of at most `piece_bytes`.
std::vector<StagedOutput> StagedOutputs(const ValidatedRequest& request,
                                        int64_t piece_bytes);
absl::Status WriteStagedOutput(const StagedOutput& output,
                               const std::byte* block);

}  // namespace attendant::server
