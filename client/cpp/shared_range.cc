#include "client/cpp/shared_range.h"

#include <functional>

namespace attendant::client {

std::optional<SharedPart> FindShared(const std::vector<SharedRange>& ranges,
                                     const void* data, int64_t bytes) {
  constexpr int64_t kAlignment = 256;  // the server's region_alignment_bytes
  const auto* begin = static_cast<const std::byte*>(data);
  const std::less<const std::byte*> before;
  for (const SharedRange& range : ranges) {
    if (bytes < 0 || before(begin, range.data) ||
        before(range.data + range.bytes, begin)) {
      continue;
    }
    const int64_t offset = begin - range.data;
    if (bytes > range.bytes - offset || offset % kAlignment != 0) continue;
    return SharedPart{&range, offset, bytes};
  }
  return std::nullopt;
}

int64_t SpanBytes(const TensorView& view) {
  const size_t rank = view.shape.size();
  if (rank == 0 || (!view.strides.empty() && view.strides.size() != rank)) {
    return -1;
  }
  const std::vector<int64_t> contiguous =
      ContiguousStrides(view.dtype, view.shape);
  const auto& strides = view.strides.empty() ? contiguous : view.strides;
  int64_t span = view.shape[rank - 1];
  if (view.dtype == DataType::kBoolBits) span = (span + 7) / 8 * 8;
  for (size_t d = 0; d < rank; ++d) {
    if (view.shape[d] < 0 || strides[d] < 0) return -1;
    if (view.shape[d] == 0) return 0;
  }
  for (size_t d = 0; d + 1 < rank; ++d) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(view.shape[d] - 1, strides[d], &reach) ||
        __builtin_add_overflow(span, reach, &span)) {
      return -1;
    }
  }
  constexpr int64_t kMaxElements = int64_t{1} << 58;
  return span > kMaxElements ? -1 : NumBytes(view.dtype, span);
}

}  // namespace attendant::client
