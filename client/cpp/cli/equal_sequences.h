// Tensors of sequences that are all equally long, in any layout.
#pragma once

#include <cstdint>
#include <vector>

#include "client/cpp/tensor.h"

namespace attendant::client::cli {

// kTHD: the sequences lie one after the other.
std::vector<int64_t> ShapeOf(Layout layout, int64_t batch, int64_t seqlen,
                             int64_t heads, int64_t head_dim);

// cu_seqlens of kTHD.
std::vector<int32_t> EqualSequences(int64_t batch, int64_t seqlen);

}  // namespace attendant::client::cli
