#include "server/calls/upload_parts.h"

#include <algorithm>
#include <utility>

namespace attendant::server {
namespace {

// Rectangles of all items: above, items all start with the last byte.
constexpr size_t kMaxRects = 4096;

// Bytes of the rectangle that lie below `position` of the block.
int64_t BytesBelow(const CopyRect& rect, int64_t position) {
  const int64_t from_start = position - rect.offset;
  if (from_start <= 0) return 0;
  if (rect.height == 1) return std::min(from_start, rect.width);
  const int64_t rows = from_start / rect.pitch;
  if (rows >= rect.height) return rect.height * rect.width;
  return rows * rect.width + std::min(from_start % rect.pitch, rect.width);
}

}  // namespace

UploadParts::UploadParts(const ValidatedRequest& request,
                         const std::vector<ItemRange>& ranges)
    : ranges_(ranges) {
  if (ranges.size() > 1) Plan(request);
}

void UploadParts::Plan(const ValidatedRequest& request) {
  std::vector<Part> parts;
  size_t rects = 0;
  for (const ItemRange& range : ranges_) {
    Part part;
    part.reads = InputCopies(request, range, /*first=*/true);
    // What lies in a region is there.
    std::erase_if(part.reads, [](const CopyRect& rect) { return rect.host; });
    part.missing = TotalBytes(part.reads);
    rects += part.reads.size();
    if (rects > kMaxRects) return;
    parts.push_back(std::move(part));
  }
  parts_ = std::move(parts);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].missing == 0) arrived_.push_back(i);
  }
}

void UploadParts::NoteFilled(ByteRange block_range) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    if (part.missing == 0) continue;
    for (const CopyRect& rect : part.reads) {
      part.missing -= BytesBelow(rect, block_range.end) -
                      BytesBelow(rect, block_range.begin);
    }
    if (part.missing == 0) arrived_.push_back(i);
  }
}

std::vector<size_t> UploadParts::TakeArrived(bool complete) {
  if (complete && parts_.empty()) {
    for (size_t i = 0; i < ranges_.size(); ++i) arrived_.push_back(i);
  }
  std::vector<size_t> items;
  while (!arrived_.empty() && (complete || started_ + 1 < ranges_.size())) {
    items.push_back(arrived_.front());
    arrived_.pop_front();
    ++started_;
  }
  return items;
}

}  // namespace attendant::server
