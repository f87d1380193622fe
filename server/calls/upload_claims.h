// Which bytes of an upload's tensors its chunks have claimed: each byte goes
// with one chunk, and at the end none may be left over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/engine/byte_ranges.h"
#include "server/request/problem_validator.h"
#include "server/request/stream_message.h"

namespace attendant::server {

// Where a chunk's bytes belong.
struct ChunkPlace {
  size_t image = 0;  // of ValidatedRequest::images
  ByteRange range;   // on the wire
};

// One thread at a time, total_bytes() apart.
class UploadClaims {
 public:
  // `request` outlives this object. What lies in regions is not uploaded.
  explicit UploadClaims(const ValidatedRequest& request);

  // Of two chunks for the same bytes the second fails. INVALID_ARGUMENT (not
  // within its tensor, not whole elements, sent before, too many gaps) or what
  // a tensor that is not uploaded gets.
  absl::StatusOr<ChunkPlace> Claim(const StreamChunk& chunk);

  // The first bytes that nobody claimed, as INVALID_ARGUMENT; OK if complete().
  absl::Status Gap() const;
  bool complete() const { return claimed_bytes_ == total_bytes_; }
  // Of all tensors, on the wire.
  int64_t total_bytes() const { return total_bytes_; }

 private:
  const ValidatedRequest& request_;
  int64_t total_bytes_ = 0;  // constant
  int64_t claimed_bytes_ = 0;
  std::vector<ByteRanges> claimed_;  // by image
};

}  // namespace attendant::server
