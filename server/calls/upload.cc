#include "server/calls/upload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/bounds.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

// Runs with gaps between them, of one tensor: bounds memory and time.
constexpr size_t kMaxRuns = 4096;
// Rectangles of all items: above, items all start with the last byte.
constexpr size_t kMaxRects = 4096;
// Shorter runs of output are not sent before the rest.
constexpr int64_t kLeastEarlyBytes = int64_t{64} << 10;
// Of a chunk of output when several streams share it.
constexpr int64_t kSharedChunkBytes = int64_t{1} << 20;

constexpr const char* kTensorNames[kNumTensorFields] = {"q", "k", "v", "qkv",
                                                        "mask"};

// Bytes of the rectangle that lie below `position` of the block.
int64_t BytesBelow(const CopyRect& rect, int64_t position) {
  const int64_t from_start = position - rect.offset;
  if (from_start <= 0) return 0;
  if (rect.height == 1) return std::min(from_start, rect.width);
  const int64_t rows = from_start / rect.pitch;
  if (rows >= rect.height) return rect.height * rect.width;
  return rows * rect.width + std::min(from_start % rect.pitch, rect.width);
}

int64_t WireElementBytes(const ValidatedRequest::Image& image) {
  return image.raw ? 1 : kernels::SizeOf(image.from);
}

// Where byte `offset` of the wire lies in the input block.
int64_t BlockOffset(const ValidatedRequest::Image& image, int64_t offset) {
  if (image.raw) return image.block_offset + offset;
  return image.block_offset +
         offset / kernels::SizeOf(image.from) * kernels::SizeOf(image.to);
}

std::string RangeText(ByteRange range) {
  return absl::StrCat("[", range.begin, ", ", range.end, ")");
}

absl::Status NoSuchTensor(const StreamChunk& chunk) {
  const std::string name = v1::StreamTensor_IsValid(chunk.tensor)
                               ? v1::StreamTensor_Name(chunk.tensor)
                               : absl::StrCat(static_cast<int>(chunk.tensor));
  constexpr char kBound[] = "an input tensor of this request, in no region";
  return v1::StreamTensor_IsValid(chunk.tensor)
             ? InvalidField("chunk.tensor", name, kBound)
             : UnimplementedField("chunk.tensor", name, kBound);
}

}  // namespace

std::shared_ptr<Upload> Upload::Start(AttentionEngine* engine,
                                      std::shared_ptr<AttentionJob> job,
                                      std::string id, std::string owner,
                                      const std::shared_ptr<UploadStream>& by) {
  std::shared_ptr<Upload> upload(
      new Upload(engine, std::move(job), std::move(id), std::move(owner)));
  upload->streams_.push_back(by);
  upload->Begin();
  return upload;
}

Upload::Upload(AttentionEngine* engine, std::shared_ptr<AttentionJob> job,
               std::string id, std::string owner)
    : engine_(engine),
      job_(std::move(job)),
      id_(std::move(id)),
      owner_(std::move(owner)),
      output_(job_->output),
      input_memory_(job_->input.data()) {
  reserved_.resize(request().images.size());
  for (const auto& image : request().images) {
    if (!image.place.in_region()) total_bytes_ += image.wire_bytes;
  }
}

Upload::~Upload() = default;

void Upload::Begin() {
  if (!job_->ranges.empty()) {
    PlanParts();
    job_->item_done = [upload = weak_from_this()](const ItemRange& range) {
      if (const auto alive = upload.lock()) alive->OnItemDone(range);
    };
    input_ = std::make_shared<HostBlock>(std::move(job_->input));
    job_->input_keeper = input_;
    Submit();
  }
  std::vector<size_t> items;
  {
    std::lock_guard lock(mu_);
    if (total_bytes_ == 0) job_->input_complete = Clock::now();
    items = TakeArrived();
  }
  StartItems(items);
}

void Upload::PlanParts() {
  std::vector<Part> parts;
  size_t rects = 0;
  for (const ItemRange& range : job_->ranges) {
    Part part;
    part.reads = InputCopies(request(), range, /*first=*/true);
    // What lies in a region is there.
    std::erase_if(part.reads, [](const CopyRect& rect) { return rect.host; });
    part.missing = TotalBytes(part.reads);
    rects += part.reads.size();
    if (rects > kMaxRects || job_->ranges.size() == 1) return;
    parts.push_back(std::move(part));
  }
  parts_ = std::move(parts);
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].missing == 0) arrived_.push_back(i);
  }
}

v1::UploadAccepted Upload::Accepted(int64_t window_bytes) const {
  v1::UploadAccepted accepted;
  accepted.set_upload_id(id_);
  accepted.set_max_chunk_bytes(kMaxChunkBytes);
  accepted.set_window_bytes(window_bytes);
  accepted.set_max_streams(kMaxStreams);
  *accepted.mutable_output() = request().output_spec;
  if (request().lse_spec.dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    *accepted.mutable_lse() = request().lse_spec;
  }
  return accepted;
}

absl::Status Upload::Join(const std::shared_ptr<UploadStream>& stream) {
  std::lock_guard lock(mu_);
  if (!status_.ok() || closed_) {
    return NoSuchUpload();
  }
  if (static_cast<int64_t>(streams_.size()) >= kMaxStreams) {
    return InvalidField("join", absl::StrCat("stream ", streams_.size() + 1),
                        absl::StrCat("at most ", kMaxStreams,
                                     " streams of an upload (max_streams)"));
  }
  streams_.push_back(stream);
  ++writers_;
  return absl::OkStatus();
}

void Upload::NoMoreChunks() {
  absl::Status gap;
  {
    std::lock_guard lock(mu_);
    if (--writers_ > 0 || reserved_bytes_ == total_bytes_) return;
    gap = Gap();
  }
  Fail(gap, Stage::kReceive);
}

absl::Status Upload::Gap() const {
  for (size_t i = 0; i < reserved_.size(); ++i) {
    const auto& image = request().images[i];
    if (image.place.in_region()) continue;
    const auto missing = reserved_[i].Missing({0, image.wire_bytes});
    if (missing.empty()) continue;
    const char* name = kTensorNames[static_cast<int>(image.field)];
    return InvalidField(
        name,
        absl::StrCat(reserved_[i].bytes(), " bytes without ",
                     RangeText(missing[0])),
        absl::StrCat("all of the ", image.wire_bytes, " bytes that it spans"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Upload::Place> Upload::Reserve(const StreamChunk& chunk) {
  const auto& images = request().images;
  const auto image =
      std::find_if(images.begin(), images.end(), [&](const auto& i) {
        return !i.place.in_region() &&
               static_cast<int>(i.field) ==
                   static_cast<int>(chunk.tensor) - v1::STREAM_TENSOR_Q;
      });
  if (image == images.end()) return NoSuchTensor(chunk);
  const char* name = kTensorNames[static_cast<int>(image->field)];
  if (chunk.byte_offset < 0 || chunk.bytes > image->wire_bytes ||
      chunk.byte_offset > image->wire_bytes - chunk.bytes) {
    return InvalidField("chunk.byte_offset",
                        absl::StrCat(chunk.byte_offset, ", with ", chunk.bytes,
                                     " bytes of ", name),
                        absl::StrCat("within the ", image->wire_bytes,
                                     " bytes that ", name, " spans"));
  }
  const int64_t element = WireElementBytes(*image);
  if (chunk.byte_offset % element != 0 || chunk.bytes % element != 0) {
    return InvalidField("chunk.byte_offset",
                        absl::StrCat(chunk.byte_offset, ", with ", chunk.bytes,
                                     " bytes of ", name),
                        absl::StrCat("whole elements of ", element, " bytes"));
  }
  Place place{static_cast<size_t>(image - images.begin()),
              {chunk.byte_offset, chunk.byte_offset + chunk.bytes}};
  std::lock_guard lock(mu_);
  ByteRanges& reserved = reserved_[place.image];
  if (const auto twice = reserved.Add(place.range); twice.has_value()) {
    return InvalidField("chunk.byte_offset",
                        absl::StrCat(RangeText(place.range), " of ", name),
                        absl::StrCat("bytes that were not sent before, as ",
                                     RangeText(*twice), " were"));
  }
  if (reserved.runs() > kMaxRuns) {
    return InvalidField(
        "chunk.byte_offset", absl::StrCat(RangeText(place.range), " of ", name),
        absl::StrCat("such that at most ", kMaxRuns, " runs lie apart"));
  }
  reserved_bytes_ += chunk.bytes;
  return place;
}

void Upload::Fill(const grpc::ByteBuffer& message, const StreamChunk& chunk,
                  const Place& place) {
  const auto& image = request().images[place.image];
  const int64_t begin = BlockOffset(image, place.range.begin);
  const absl::Status copied =
      CopyTensorBytes(message, chunk.message_offset, chunk.bytes,
                      image.raw ? kernels::DataType::kFloat32 : image.from,
                      image.raw ? kernels::DataType::kFloat32 : image.to,
                      input_memory_ + begin);
  if (!copied.ok()) return Fail(copied, Stage::kReceive);
  std::vector<size_t> items;
  {
    std::lock_guard lock(mu_);
    filled_bytes_ += chunk.bytes;
    NoteFilled({begin, BlockOffset(image, place.range.end)});
    if (filled_bytes_ == total_bytes_) job_->input_complete = Clock::now();
    if (!status_.ok()) return;
    items = TakeArrived();
  }
  StartItems(items);
}

void Upload::NoteFilled(ByteRange block_range) {
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

// The last item waits for the last byte, whether it reads it or not: no answer
// before everything was sent.
std::vector<size_t> Upload::TakeArrived() {
  const bool complete = filled_bytes_ == total_bytes_;
  if (complete && parts_.empty()) {
    for (size_t i = 0; i < job_->ranges.size(); ++i) arrived_.push_back(i);
  }
  std::vector<size_t> items;
  while (!arrived_.empty() &&
         (complete || items_started_ + 1 < job_->ranges.size())) {
    items.push_back(arrived_.front());
    arrived_.pop_front();
    ++items_started_;
  }
  return items;
}

void Upload::StartItems(const std::vector<size_t>& items) {
  if (!job_->ranges.empty()) {
    for (const size_t item : items) engine_->InputArrived(job_, item);
    return;
  }
  bool complete = false;
  {
    std::lock_guard lock(mu_);
    complete = filled_bytes_ == total_bytes_ && items_started_ == 0;
    if (complete) ++items_started_;
  }
  if (complete) Submit();
}

void Upload::Submit() {
  // Weak: if all streams are gone, nobody waits.
  job_->done = [weak = weak_from_this()](JobResult result) {
    if (const auto upload = weak.lock()) upload->OnResult(std::move(result));
  };
  engine_->Submit(job_);
}

void Upload::Fail(const absl::Status& status, Stage stage) {
  {
    std::lock_guard lock(mu_);
    if (!status_.ok() || closed_) return;
    status_ = status;
    failed_stage_ = filled_bytes_ < total_bytes_ ? Stage::kReceive : stage;
    outputs_.clear();
  }
  // Of a job that was not submitted this only says that it must not run.
  engine_->Cancel(job_);
  WakeAll();
}

void Upload::OnItemDone(const ItemRange& range) {
  {
    std::lock_guard lock(mu_);
    // What is narrowed is so at the end.
    if (!status_.ok() || request().narrow_output_to.has_value()) return;
    for (const CopyRect& rect : OutputCopies(request(), range)) {
      if (rect.host != nullptr) continue;  // it is where the caller wants it
      if (rect.height == 1 && rect.width >= kLeastEarlyBytes) {
        Offer({rect.offset, rect.offset + rect.width});
      }
    }
  }
  WakeAll();
}

void Upload::Offer(ByteRange range) {
  if (!offered_.Add(range).has_value()) outputs_.push_back(range);
}

void Upload::OnResult(JobResult result) {
  if (!result.status.ok()) return Fail(result.status, result.stage);
  {
    std::lock_guard lock(mu_);
    if (!status_.ok()) return;
    result_ = std::move(result);
    answered_ = true;
    const ValidatedRequest& r = request();
    const auto offer_rest = [&](const TensorPlace& place, ByteRange whole) {
      if (place.in_region()) return;
      for (const ByteRange& rest : offered_.Missing(whole)) Offer(rest);
    };
    offer_rest(r.output_place,
               {r.output_offset, r.output_offset + r.wire_output_bytes()});
    offer_rest(r.lse_place, {r.lse_offset, r.lse_offset + r.lse_bytes});
  }
  WakeAll();
}

UploadOutput Upload::Next(bool first) {
  using Kind = UploadOutput::Kind;
  std::lock_guard lock(mu_);
  UploadOutput next;
  if (!status_.ok()) {
    next.kind = Kind::kFailed;
  } else if (!outputs_.empty()) {
    next.kind = Kind::kChunk;
    ByteRange& range = outputs_.front();
    const bool lse =
        range.begin >= request().lse_offset && request().lse_bytes > 0;
    next.tensor = lse ? v1::STREAM_TENSOR_LSE : v1::STREAM_TENSOR_OUTPUT;
    next.block_offset = range.begin;
    next.byte_offset =
        range.begin - (lse ? request().lse_offset : request().output_offset);
    next.bytes = std::min(range.bytes(), streams_.size() > 1 ? kSharedChunkBytes
                                                             : kMaxChunkBytes);
    range.begin += next.bytes;
    if (range.bytes() == 0) outputs_.pop_front();
  } else if (answered_) {
    next.kind = first ? Kind::kAnswer : Kind::kEnd;
    if (first) closed_ = true;
  }
  return next;
}

absl::Status Upload::status() const {
  std::lock_guard lock(mu_);
  return status_;
}

Stage Upload::failed_stage() const {
  std::lock_guard lock(mu_);
  return failed_stage_;
}

bool Upload::all_reserved() const {
  std::lock_guard lock(mu_);
  return reserved_bytes_ == total_bytes_;
}

void Upload::WakeAll() {
  std::vector<std::shared_ptr<UploadStream>> streams;
  {
    std::lock_guard lock(mu_);
    for (const auto& stream : streams_) {
      if (auto alive = stream.lock()) streams.push_back(std::move(alive));
    }
  }
  for (const auto& stream : streams) stream->Wake();
}

}  // namespace attendant::server
