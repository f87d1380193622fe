#include "server/engine/item_copies.h"

#include <algorithm>

namespace attendant::server {
namespace {

using kernels::AttentionProblem;
using kernels::MaskKind;
using kernels::SequenceBounds;

struct Interval {
  int64_t begin = 0, end = 0;
  int64_t size() const { return std::max<int64_t>(0, end - begin); }
};

// One dimension of a box: `count` steps of `stride` bytes.
struct Dimension {
  int64_t count = 0;
  int64_t stride = 0;
};

// A part of a tensor in bytes: runs of `width` over up to three dimensions.
struct Box {
  int64_t offset = 0;
  int64_t width = 0;
  std::vector<Dimension> dimensions;
};

// Sorts dimensions from the inside out and drops those that move nowhere.
void Normalise(Box* box) {
  auto& dimensions = box->dimensions;
  for (const Dimension& dimension : dimensions) {
    if (dimension.count == 0) box->width = 0;
  }
  std::erase_if(dimensions, [](const Dimension& dimension) {
    return dimension.count <= 1 || dimension.stride == 0;
  });
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) {
              return a.stride < b.stride;
            });
}

// True if runs of a normalised box share bytes.
bool Overlaps(const Box& box) {
  int64_t extent = box.width;
  for (const Dimension& dimension : box.dimensions) {
    if (dimension.stride < extent) return true;
    extent += (dimension.count - 1) * dimension.stride;
  }
  return false;
}

void AppendSpan(const Box& box, std::vector<CopyRect>* rects) {
  int64_t extent = box.width;
  for (const Dimension& dimension : box.dimensions) {
    extent += (dimension.count - 1) * dimension.stride;
  }
  rects->push_back({box.offset, extent, extent, 1});
}

void AppendBox(Box box, std::vector<CopyRect>* rects) {
  Normalise(&box);
  if (box.width == 0) return;
  if (Overlaps(box)) return AppendSpan(box, rects);
  auto& dimensions = box.dimensions;
  while (!dimensions.empty() && dimensions.front().stride == box.width) {
    box.width *= dimensions.front().count;
    dimensions.erase(dimensions.begin());
  }
  const Dimension inner =
      dimensions.empty() ? Dimension{1, box.width} : dimensions[0];
  const Dimension middle =
      dimensions.size() > 1 ? dimensions[1] : Dimension{1, 0};
  const Dimension outer =
      dimensions.size() > 2 ? dimensions[2] : Dimension{1, 0};
  for (int64_t i = 0; i < outer.count; ++i) {
    for (int64_t j = 0; j < middle.count; ++j) {
      rects->push_back({box.offset + i * outer.stride + j * middle.stride,
                        inner.stride, box.width, inner.count});
    }
  }
}

template <typename View>
Box BoxOf(int64_t offset, const View& view, Interval batch, Interval rows,
          Interval heads, int64_t head_dim, int64_t element) {
  return {offset + element * (batch.begin * view.batch_stride +
                              rows.begin * view.row_stride +
                              heads.begin * view.head_stride),
          head_dim * element,
          {{batch.size(), view.batch_stride * element},
           {rows.size(), view.row_stride * element},
           {heads.size(), view.head_stride * element}}};
}

// Rows that belong to [batch.begin, batch.end) of a packed tensor, gaps before
// a sequence and after the last one included.
Interval PackedRowsQ(const AttentionProblem& problem, Interval batch) {
  const auto begin_of = [&](int64_t b) {
    return b == 0 ? 0
                  : (b == problem.batch ? problem.rows_q
                                        : problem.sequences[b].q_begin);
  };
  return {begin_of(batch.begin), begin_of(batch.end)};
}

// Rows of k and v that the entries' sequences use.
Interval RowsKv(const AttentionProblem& problem, Interval batch) {
  Interval rows{INT64_MAX, 0};
  for (int64_t b = batch.begin; b < batch.end; ++b) {
    const SequenceBounds& sequence = problem.sequence(b);
    if (sequence.len_kv == 0) continue;
    rows.begin = std::min(rows.begin, sequence.kv_begin);
    rows.end = std::max(rows.end, sequence.kv_begin + sequence.len_kv);
    if (problem.sequences.size() == 1) break;
  }
  if (rows.end == 0) rows.begin = 0;
  return rows;
}

bool IsWhole(const AttentionProblem& problem, const ItemRange& range) {
  return !range.cut_by_rows() &&
         range.batch_end - range.batch_begin == problem.batch &&
         range.kv_head_end - range.kv_head_begin == problem.num_kv_heads;
}

// Stored rows of q, O and LSE that belong to an item.
Interval RowsQ(const AttentionProblem& problem, const ItemRange& range) {
  if (range.cut_by_rows()) return {range.row_begin, range.row_end};
  if (!problem.HasPackedRows()) return {0, problem.rows_q};
  return PackedRowsQ(problem, {range.batch_begin, range.batch_end});
}

// What the items of one request share of a tensor can't be cut.
bool IsShared(const kernels::InputTensor& view, const AttentionProblem& problem,
              int64_t heads, const Box& whole) {
  const bool repeated_entries =
      problem.batch > 1 && view.batch_stride == 0 && !problem.HasPackedRows();
  const bool repeated_heads = heads > 1 && view.head_stride == 0;
  return repeated_entries || repeated_heads || Overlaps(whole);
}

// Runs that begin within [offset, offset + bytes), a tensor in a region, are
// read from there; or left out, if the kernel finds it there.
void PointIntoRegion(const TensorPlace& place, int64_t offset, int64_t bytes,
                     std::vector<CopyRect>* rects) {
  const auto within = [&](const CopyRect& rect) {
    return rect.offset >= offset && rect.offset < offset + bytes;
  };
  if (place.kernel_memory != nullptr) std::erase_if(*rects, within);
  if (place.host_memory == nullptr) return;
  for (CopyRect& rect : *rects) {
    if (within(rect)) rect.host = place.host_memory + (rect.offset - offset);
  }
}

class InputCutter {
 public:
  InputCutter(const ValidatedRequest& request, const ItemRange& range,
              bool first, bool brings_kv)
      : request_(request),
        problem_(request.problem),
        batch_{range.batch_begin, range.batch_end},
        kv_heads_{range.kv_head_begin, range.kv_head_end},
        rows_q_(RowsQ(request.problem, range)),
        first_(first),
        brings_kv_(brings_kv) {}

  std::vector<CopyRect> Cut() {
    CutTensors();
    for (const ValidatedRequest::Image& image : request_.images) {
      PointIntoRegion(image.place, image.block_offset, image.block_bytes,
                      &rects_);
    }
    return std::move(rects_);
  }

 private:
  void CutTensors() {
    const int64_t group = problem_.group_size();
    const Interval all{0, problem_.batch};
    Append(problem_.q, request_.q_offset, rows_q_, {0, problem_.rows_q},
           {kv_heads_.begin * group, kv_heads_.end * group},
           problem_.num_q_heads, problem_.head_dim);
    if (brings_kv_) AppendKv(all);
    if (first_) AppendMask();
  }

  void AppendKv(Interval all) {
    const Interval rows_kv = RowsKv(problem_, batch_);
    const Interval all_rows_kv = RowsKv(problem_, all);
    Append(problem_.k, request_.k_offset, rows_kv, all_rows_kv, kv_heads_,
           problem_.num_kv_heads, problem_.head_dim);
    Append(problem_.v, request_.v_offset, rows_kv, all_rows_kv, kv_heads_,
           problem_.num_kv_heads, problem_.head_dim_v);
  }

  void Append(const kernels::InputTensor& view, int64_t offset, Interval rows,
              Interval all_rows, Interval heads, int64_t num_heads,
              int64_t head_dim) {
    const int64_t element = kernels::SizeOf(problem_.dtype);
    Box whole = BoxOf(offset, view, {0, problem_.batch}, all_rows,
                      {0, num_heads}, head_dim, element);
    Normalise(&whole);
    if (!IsShared(view, problem_, num_heads, whole)) {
      AppendBox(BoxOf(offset, view, batch_, rows, heads, head_dim, element),
                &rects_);
    } else if (first_) {
      AppendBox(std::move(whole), &rects_);
    }
  }

  void AppendMask() {
    if (problem_.mask.kind == MaskKind::kNone) return;
    for (const ValidatedRequest::Image& image : request_.images) {
      if (image.field != TensorField::kMask || image.block_bytes == 0) continue;
      rects_.push_back(
          {image.block_offset, image.block_bytes, image.block_bytes, 1});
    }
  }

  const ValidatedRequest& request_;
  const AttentionProblem& problem_;
  const Interval batch_;
  const Interval kv_heads_;
  const Interval rows_q_;
  const bool first_;
  const bool brings_kv_;
  std::vector<CopyRect> rects_;
};

void AppendRun(int64_t offset, int64_t bytes, std::vector<CopyRect>* rects) {
  if (bytes > 0) rects->push_back({offset, bytes, bytes, 1});
}

}  // namespace

int64_t TotalBytes(const std::vector<CopyRect>& rects) {
  int64_t bytes = 0;
  for (const CopyRect& rect : rects) bytes += rect.width * rect.height;
  return bytes;
}

std::vector<CopyRect> InputCopies(const ValidatedRequest& request,
                                  const ItemRange& range, bool first,
                                  bool brings_kv) {
  if (IsWhole(request.problem, range)) {
    std::vector<CopyRect> rects;
    AppendRun(0, request.host_input_bytes(), &rects);
    for (const ValidatedRequest::Image& image : request.images) {
      if (image.place.host_memory == nullptr) continue;
      AppendRun(image.block_offset, image.block_bytes, &rects);
      if (image.block_bytes > 0) rects.back().host = image.place.host_memory;
    }
    return rects;
  }
  return InputCutter(request, range, first, brings_kv).Cut();
}

std::vector<CopyRect> OutputCopies(const ValidatedRequest& request,
                                   const ItemRange& range) {
  const AttentionProblem& problem = request.problem;
  const bool whole = IsWhole(problem, range);
  const Interval batch{range.batch_begin, range.batch_end};
  const Interval heads{range.kv_head_begin * problem.group_size(),
                       range.kv_head_end * problem.group_size()};
  const Interval rows = RowsQ(problem, range);
  std::vector<CopyRect> rects;
  if (whole) {
    AppendRun(request.output_offset, request.output_bytes, &rects);
  } else {
    AppendBox(BoxOf(request.output_offset, problem.out, batch, rows, heads,
                    problem.head_dim_v, kernels::SizeOf(problem.output_dtype)),
              &rects);
  }
  PointIntoRegion(request.output_place, request.output_offset,
                  request.output_bytes, &rects);
  if (request.lse_bytes == 0) return rects;
  constexpr int64_t kFloat = sizeof(float);
  std::vector<CopyRect> lse;
  if (whole) {
    AppendRun(request.lse_offset, request.lse_bytes, &lse);
  } else {
    AppendBox(
        {request.lse_offset +
             kFloat * (batch.begin * problem.lse_batch_stride +
                       heads.begin * problem.lse_head_stride + rows.begin),
         rows.size() * kFloat,
         {{batch.size(), problem.lse_batch_stride * kFloat},
          {heads.size(), problem.lse_head_stride * kFloat}}},
        &lse);
  }
  PointIntoRegion(request.lse_place, request.lse_offset, request.lse_bytes,
                  &lse);
  rects.insert(rects.end(), lse.begin(), lse.end());
  return rects;
}

}  // namespace attendant::server
