#include "server/calls/upload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/request/bounds.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

// Shorter runs of output are not sent before the rest.
constexpr int64_t kLeastEarlyBytes = int64_t{64} << 10;
// Of a chunk of output when several streams share it.
constexpr int64_t kSharedChunkBytes = int64_t{1} << 20;

// Where byte `offset` of the wire lies in the input block.
int64_t BlockOffset(const ValidatedRequest::Image& image, int64_t offset) {
  if (image.raw) return image.block_offset + offset;
  return image.block_offset +
         offset / kernels::SizeOf(image.from) * kernels::SizeOf(image.to);
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
      input_memory_(job_->input.data()),
      claims_(request()),
      parts_(request(), job_->ranges) {}

Upload::~Upload() = default;

void Upload::Begin() {
  if (!job_->ranges.empty()) {
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
    if (filled()) job_->input_complete = Clock::now();
    items = parts_.TakeArrived(filled());
  }
  StartItems(items);
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
    if (--writers_ > 0 || claims_.complete()) return;
    gap = claims_.Gap();
  }
  Fail(gap, Stage::kReceive);
}

absl::StatusOr<ChunkPlace> Upload::Reserve(const StreamChunk& chunk) {
  std::lock_guard lock(mu_);
  return claims_.Claim(chunk);
}

void Upload::Fill(const grpc::ByteBuffer& message, const StreamChunk& chunk,
                  const ChunkPlace& place) {
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
    parts_.NoteFilled({begin, BlockOffset(image, place.range.end)});
    if (filled()) job_->input_complete = Clock::now();
    if (!status_.ok()) return;
    items = parts_.TakeArrived(filled());
  }
  StartItems(items);
}

void Upload::StartItems(const std::vector<size_t>& items) {
  if (!job_->ranges.empty()) {
    for (const size_t item : items) engine_->InputArrived(job_, item);
    return;
  }
  bool complete = false;
  {
    std::lock_guard lock(mu_);
    complete = filled() && !std::exchange(submitted_, true);
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
    failed_stage_ = !filled() ? Stage::kReceive : stage;
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
  return claims_.complete();
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
