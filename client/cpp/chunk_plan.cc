#include "client/cpp/chunk_plan.h"

#include <algorithm>

namespace attendant::client {
namespace {

// Where portion p of a tensor begins; one more than there are portions.
using Borders = std::vector<int64_t>;

Borders EvenBorders(int64_t bytes, int64_t portions) {
  Borders borders;
  for (int64_t p = 0; p <= portions; ++p) {
    borders.push_back(bytes / portions * p);
  }
  borders.back() = bytes;
  return borders;
}

// By sequences; none if the list is not what the server will accept.
Borders BordersOf(const std::vector<int32_t>& cu_seqlens, int64_t bytes) {
  if (cu_seqlens.size() < 2 || cu_seqlens.front() != 0 ||
      cu_seqlens.back() <= 0 || bytes % cu_seqlens.back() != 0 ||
      !std::is_sorted(cu_seqlens.begin(), cu_seqlens.end())) {
    return {};
  }
  const int64_t row_bytes = bytes / cu_seqlens.back();
  Borders borders;
  for (const int32_t row : cu_seqlens) borders.push_back(row * row_bytes);
  return borders;
}

// Portions that a contiguous q, k or v consists of: batch entries, or their KV
// heads where those are apart.
int64_t PortionsOf(const AttendArgs& args) {
  if (args.layout == Layout::kTHD || args.k.shape.size() != 4) return 1;
  const int64_t entries = args.k.shape[0];
  const int64_t heads = args.layout == Layout::kBHSD ? args.k.shape[1] : 1;
  return std::max<int64_t>(1, entries * heads);
}

Borders BordersOf(const AttendArgs& args, const NamedTensor& tensor) {
  const int64_t bytes = tensor.bytes.num_bytes;
  if (!tensor.bytes.strides.empty()) return {0, bytes};
  if (args.layout != Layout::kTHD) {
    const int64_t portions = PortionsOf(args);
    return bytes % portions == 0 ? EvenBorders(bytes, portions)
                                 : Borders{0, bytes};
  }
  Borders borders = BordersOf(
      tensor.field == TensorName::kQ ? args.cu_seqlens_q : args.cu_seqlens_k,
      bytes);
  return borders.empty() ? Borders{0, bytes} : borders;
}

// Mask and packed tensors first, then K and V before Q.
std::vector<size_t> SendOrder(const std::vector<NamedTensor>& tensors) {
  std::vector<size_t> order;
  for (size_t t = 0; t < tensors.size(); ++t) order.push_back(t);
  const auto rank = [&](size_t t) {
    switch (tensors[t].field) {
      case TensorName::kK:
        return 1;
      case TensorName::kV:
        return 2;
      case TensorName::kQ:
        return 3;
      default:
        return 0;
    }
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return rank(a) < rank(b); });
  return order;
}

void Append(size_t tensor, int64_t begin, int64_t end, int64_t chunk_bytes,
            std::vector<PlannedChunk>* chunks) {
  for (int64_t at = begin; at < end; at += chunk_bytes) {
    chunks->push_back({tensor, at, std::min(chunk_bytes, end - at)});
  }
}

// The server computes, and answers, what the last chunk completes only when all
// of it is there: it goes in pieces.
void SplitLast(std::vector<PlannedChunk>* chunks) {
  constexpr int64_t kBytes = int64_t{1} << 20;
  if (chunks->empty()) return;
  const PlannedChunk last = chunks->back();
  chunks->pop_back();
  Append(last.tensor, last.offset, last.offset + last.bytes, kBytes, chunks);
}

}  // namespace

std::vector<PlannedChunk> PlanChunks(const AttendArgs& args,
                                     const std::vector<NamedTensor>& tensors,
                                     int64_t chunk_bytes) {
  const std::vector<size_t> order = SendOrder(tensors);
  std::vector<Borders> borders;
  size_t portions = 1;
  int64_t bytes = 0;
  for (const NamedTensor& tensor : tensors) {
    borders.push_back(BordersOf(args, tensor));
    portions = std::max(portions, borders.back().size() - 1);
    bytes += tensor.bytes.num_bytes;
  }
  // Portions far smaller than a chunk go together.
  size_t step = 1;
  while (step < portions &&
         bytes / static_cast<int64_t>(portions) * static_cast<int64_t>(step) <
             chunk_bytes) {
    step *= 2;
  }
  std::vector<PlannedChunk> chunks;
  for (size_t p = 0; p < portions; p += step) {
    for (const size_t t : order) {
      const size_t last = borders[t].size() - 1;
      // A tensor without so many portions goes whole, with the first.
      if (p >= last) continue;
      const size_t end = last < portions ? last : std::min(p + step, last);
      if (last < portions && p > 0) continue;
      Append(t, borders[t][p], borders[t][end], chunk_bytes, &chunks);
    }
  }
  SplitLast(&chunks);
  return chunks;
}

}  // namespace attendant::client
