#include "client/cpp/cli/equal_sequences.h"

namespace attendant::client::cli {

std::vector<int64_t> ShapeOf(Layout layout, int64_t batch, int64_t seqlen,
                             int64_t heads, int64_t head_dim) {
  if (layout == Layout::kTHD) return {batch * seqlen, heads, head_dim};
  if (layout == Layout::kBHSD) return {batch, heads, seqlen, head_dim};
  return {batch, seqlen, heads, head_dim};
}

std::vector<int32_t> EqualSequences(int64_t batch, int64_t seqlen) {
  std::vector<int32_t> borders;
  for (int64_t b = 0; b <= batch; ++b) {
    borders.push_back(static_cast<int32_t>(b * seqlen));
  }
  return borders;
}

}  // namespace attendant::client::cli
