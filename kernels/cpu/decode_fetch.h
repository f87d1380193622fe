// Which rows of K and V the decode form fetches while it works on others.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>

namespace attendant::kernels::cpu {

// Rows of K or V, and what is to be fetched while one of them is worked on. It
// may lie behind the tensor's end: a prefetch never faults.
class RowsAhead {
 public:
  // Rows of `size` elements of `element` bytes, `pitch` elements apart.
  RowsAhead(const void* rows, int64_t size, int64_t pitch, int64_t element)
      : pitch_(pitch * element),
        rows_(reinterpret_cast<uintptr_t>(rows) +
              pitch_ * RowsIn(kFetchBytes, size * element)),
        pages_(rows_ + pitch_ * RowsIn(kPageBytes, size * element)),
        page_mask_(static_cast<int64_t>(std::bit_floor(std::clamp<uint64_t>(
                       kSmallPage / std::max<int64_t>(1, std::abs(pitch_)), 1,
                       kMaxRows))) -
                   1) {}

  // The row to fetch beside `row`: kFetchBytes later, what memory delivers in
  // its latency.
  const char* Of(int64_t row) const { return At(rows_ + row * pitch_); }

  // To be called for each kCount rows from `row` on, a multiple of kCount,
  // which is a power of two: touches the pages of the rows kPageBytes later,
  // once each. Otherwise fetching stops at each small page for its translation.
  template <int kCount>
  void FetchPages(int64_t row) const {
    if (page_mask_ >= kCount) {
      if ((row & page_mask_) == 0) {
        __builtin_prefetch(At(pages_ + row * pitch_));
      }
      return;
    }
    for (int i = 0; i < kCount; i += static_cast<int>(page_mask_) + 1) {
      __builtin_prefetch(At(pages_ + (row + i) * pitch_));
    }
  }

  int64_t pitch_bytes() const { return pitch_; }

 private:
  static constexpr int64_t kFetchBytes = 6144;
  static constexpr int64_t kPageBytes = 18432;
  static constexpr int64_t kSmallPage = 4096;
  static constexpr int64_t kMaxRows = 256;

  static int64_t RowsIn(int64_t bytes, int64_t row_bytes) {
    return std::clamp<int64_t>(bytes / row_bytes / 4 * 4, 4, kMaxRows);
  }
  static const char* At(uintptr_t address) {
    return reinterpret_cast<const char*>(address);
  }

  const int64_t pitch_;  // bytes
  const uintptr_t rows_, pages_;
  const int64_t page_mask_;  // rows on a page, a power of two, less one
};

// Where rows of `heads` heads, of row_bytes each, lie side by side and are
// worked on key by key: how many bytes behind a row the one to fetch lies.
inline int64_t BytesAheadOfHeads(int64_t row_bytes, int64_t heads,
                                 int64_t pitch_bytes) {
  constexpr int64_t kFetchBytes = 12288;
  return std::max<int64_t>(1, kFetchBytes / (heads * row_bytes)) * pitch_bytes;
}

// `row` and so many bytes: an address to fetch, maybe behind the tensor's end.
inline const char* BytesBehind(const void* row, int64_t bytes) {
  return reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(row) +
                                       bytes);
}

}  // namespace attendant::kernels::cpu
