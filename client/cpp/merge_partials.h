// Attention over a union of key sets, from the attention over each: what a
// caller needs who splits keys over requests or servers.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/tensor.h"

namespace attendant::client {

// One answer: ask for output_dtype fp32 and return_lse, without sinks.
struct Partial {
  TensorView out;  // fp32, contiguous
  TensorView lse;  // fp32, contiguous
};

struct MergedPartials {
  Tensor out;
  Tensor lse;
};

// All partials have one layout and one shape. Weights are exp(lse - max lse):
//   - a row whose LSE is -inf in a partial takes nothing from it, whatever its
//     O holds; in all of them: O = 0, LSE = -inf;
//   - a row that one partial alone has is that partial's row, bit for bit.
// Sums are in double, rounded once to fp32. INVALID_ARGUMENT, naming partial
// and field, if there is none or shapes or types do not fit.
absl::StatusOr<MergedPartials> MergePartials(Layout layout,
                                             std::span<const Partial> partials);

// Scales O by 1 / (1 + exp(sinks[h] - lse)) in place: once, after the merge.
// sinks: [num_q_heads], -inf = none. LSE is without the sink and stays.
absl::Status ApplySinks(Layout layout, std::span<const float> sinks,
                        Tensor& out, const Tensor& lse);

}  // namespace attendant::client
