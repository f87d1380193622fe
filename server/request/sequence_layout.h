// Where every sequence of a request lies: lengths and starts of padded
// batches, cu_seqlens of packed ones, the diagonal.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "kernels/problem.h"
#include "server/request/bounds.h"

namespace attendant::server {

struct StoredRows {
  bool packed_rows = false;  // THD
  bool packed_qkv = false;   // cu_seqlens_k may be left out
  int64_t batch = 0;         // THD: ignored, cu_seqlens say it
  int64_t rows_q = 0;        // per batch entry; THD: in all
  int64_t rows_kv = 0;
};

struct SequenceLayout {
  int64_t batch = 0;
  // As AttentionProblem::sequences: one entry if all are alike (or none is).
  std::vector<kernels::SequenceBounds> sequences;
  // What a mask's rows and keys count: the stored rows, or THD's longest.
  int64_t mask_rows = 0;
  int64_t mask_keys = 0;
};

// Errors: INVALID_ARGUMENT for lists of the wrong size, for entries out of
// order or out of the stored rows, and if the diagonal matters (causal, a
// window, ALiBi), lengths differ and `alignment` is unset; UNIMPLEMENTED for an
// alignment this server does not know.
absl::StatusOr<SequenceLayout> ResolveSequences(
    const v1::AttendRequest& request, const StoredRows& rows,
    const Bounds& bounds);

}  // namespace attendant::server
