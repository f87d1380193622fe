#include "server/calls/attend_stream_call.h"

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/calls/attend_reply.h"
#include "server/calls/call_timer.h"
#include "server/calls/tensor_copy.h"
#include "server/calls/unanswered_call.h"
#include "server/calls/upload.h"
#include "server/regions/region_service.h"
#include "server/regions/request_regions.h"
#include "server/request/errors.h"
#include "server/request/problem_validator.h"
#include "server/request/stream_message.h"

namespace attendant::server {
namespace {

class AttendStreamCall final
    : public grpc::ServerGenericBidiReactor,
      public UploadStream,
      public std::enable_shared_from_this<AttendStreamCall> {
 public:
  AttendStreamCall(CallEnvironment* environment,
                   grpc::GenericCallbackServerContext* context,
                   std::shared_ptr<const Identity> identity)
      : env_(environment),
        context_(context),
        identity_(std::move(identity)),
        trace_(*context, environment->tracer),
        timer_(context, environment->bounds.default_deadline_ms) {}

  void Begin() {
    self_ = shared_from_this();
    env_->metrics->Started(Method::kAttendStream);
    ++env_->open_calls;
    if (const absl::Status refused = place_.Take(&env_->uploads, Owner());
        !refused.ok()) {
      std::lock_guard lock(mu_);
      return FinishWith(refused, Stage::kReceive);
    }
    timer_.Start([weak = weak_from_this()] {
      if (const auto call = weak.lock(); call != nullptr) call->Expire();
    });
    watched_.emplace(&env_->watch, context_->peer(),
                     kMaxHeaderBytes + kMaxChunkOverhead,
                     [weak = weak_from_this()] {
                       if (const auto call = weak.lock()) call->CutOff();
                     });
    std::lock_guard lock(mu_);
    reading_ = 0;
    StartRead(&messages_[0]);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {
      if (!context_->IsCancelled()) OnHalfClose();
      return;
    }
    const int slot = reading_;
    const auto bytes = static_cast<int64_t>(messages_[slot].Length());
    message_bytes_ += bytes;
    watched_->Delivered(bytes, kMaxChunkBytes + kMaxChunkOverhead);
    if (absl::Status status = Receive(slot); !status.ok()) Fail(status);
  }

  void OnWriteDone(bool) override {
    {
      std::lock_guard lock(mu_);
      writing_ = false;
      reply_.Clear();
    }
    Wake();
  }

  // A joined stream's end before its work is done is the upload's.
  void OnCancel() override {
    const absl::Status why = timer_.WhyCancelled();
    Fail(is_first() || !absl::IsCancelled(why)
             ? why
             : absl::UnavailableError("a joined stream was lost"));
  }

  void OnDone() override {
    timer_.Done();
    watched_.reset();
    --env_->open_calls;
    if (is_first()) env_->upload_table.Remove(upload_->id());
    const std::shared_ptr<AttendStreamCall> last = std::move(self_);
  }

  // Sends what there is to send, or ends.
  void Wake() override {
    std::lock_guard lock(mu_);
    if (finished_ || writing_) return;
    if (accepted_.Valid()) {
      reply_.Swap(&accepted_);
      return Write();
    }
    if (upload_ == nullptr) {
      if (!failure_.ok()) FinishWith(failure_, Stage::kReceive);
      return;
    }
    const UploadOutput next = upload_->Next(is_first_);
    switch (next.kind) {
      case UploadOutput::Kind::kNothing:
        return;
      case UploadOutput::Kind::kChunk:
        reply_ = EncodeChunk(next.tensor, next.byte_offset, upload_->output(),
                             next.block_offset, next.bytes);
        return Write();
      case UploadOutput::Kind::kAnswer:
        return FinishWithAnswer();
      case UploadOutput::Kind::kEnd:
        return FinishWith(absl::OkStatus(), Stage::kSend);
      case UploadOutput::Kind::kFailed:
        return FinishWith(upload_->status(), upload_->failed_stage());
    }
  }

 private:
  bool is_first() const {
    std::lock_guard lock(mu_);
    return is_first_;
  }

  void Fail(const absl::Status& status) {
    std::shared_ptr<Upload> upload;
    {
      std::lock_guard lock(mu_);
      if (failure_.ok()) failure_ = status;
      upload = upload_;
    }
    if (upload != nullptr) upload->Fail(status, Stage::kQueue);
    Wake();
  }

  // More is arriving than any message may have.
  void CutOff() {
    Fail(InvalidField("message", "longer than its bound",
                      absl::StrCat("at most ", kMaxChunkBytes,
                                   " bytes of data (max_chunk_bytes)")));
  }

  // The deadline passed: ends the call, or the sending of its reply.
  void Expire() {
    bool stuck = false;
    {
      std::lock_guard lock(mu_);
      stuck = finished_ || writing_;
    }
    Fail(CallTimer::DeadlinePassed());
    if (stuck) timer_.CancelCall();
  }

  void OnHalfClose() {
    std::shared_ptr<Upload> upload;
    {
      std::lock_guard lock(mu_);
      upload = upload_;
    }
    place_.Release();
    if (upload != nullptr) return upload->NoMoreChunks();
    Fail(InvalidField("stream", "without a message",
                      "begun by a header or a join"));
  }

  // mu_ not held, in all below up to FinishWith; only the reader calls them.

  absl::Status Receive(int slot) {
    ASSIGN_OR_RETURN(StreamPart part, ParseStreamRequest(messages_[slot]));
    if (const auto* chunk = std::get_if<StreamChunk>(&part)) {
      return ReceiveChunk(slot, *chunk);
    }
    if (upload_ != nullptr) {
      return InvalidField("message", "a second header or join",
                          "the stream's first");
    }
    messages_[slot].Clear();
    if (auto* header = std::get_if<StreamHeader>(&part)) {
      RETURN_IF_ERROR(OpenUpload(header->request));
    } else {
      RETURN_IF_ERROR(JoinUpload(std::get<StreamJoin>(part).upload_id));
    }
    upload_->bytes_in += message_bytes_;
    ReadInto(slot);
    Wake();
    return absl::OkStatus();
  }

  absl::Status OpenUpload(const ParsedRequest& parsed) {
    {
      std::lock_guard lock(mu_);  // a failure may be logged
      request_id_ = parsed.header.request_id();
    }
    if (env_->draining) return absl::UnavailableError("the server is draining");
    // No message has to hold the tensors.
    Bounds bounds = env_->bounds;
    bounds.max_request_bytes = bounds.max_response_bytes = kMaxTensorBytes;
    ASSIGN_OR_RETURN(
        std::unique_ptr<ValidatedRequest> request,
        ValidateRequest(parsed, bounds, env_->engine->device().properties));
    RETURN_IF_ERROR(PlaceRegions(RegionOwner(*context_), parsed.header,
                                 env_->engine->device().is_cuda, &env_->regions,
                                 request.get()));
    RETURN_IF_ERROR(CheckStreamRegions(*request));
    request->arrives_in_parts = true;
    if (identity_ != nullptr) ApplyIdentity(*identity_, request.get());
    ASSIGN_OR_RETURN(std::string id, UploadTable::NewId());
    ASSIGN_OR_RETURN(
        auto job, env_->engine->Admit(std::move(request), timer_.deadline()));
    auto upload = Upload::Start(env_->engine, std::move(job), std::move(id),
                                Owner(), shared_from_this());
    env_->upload_table.Add(upload);
    Enter(upload, /*first=*/true);
    return absl::OkStatus();
  }

  // Whose upload it is, if callers are told apart.
  std::string Owner() const {
    return identity_ != nullptr ? identity_->name : std::string();
  }

  absl::Status JoinUpload(const std::string& id) {
    ASSIGN_OR_RETURN(auto upload, env_->upload_table.Find(id, Owner()));
    RETURN_IF_ERROR(upload->Join(shared_from_this()));
    Enter(upload, /*first=*/false);
    return absl::OkStatus();
  }

  void Enter(const std::shared_ptr<Upload>& upload, bool first) {
    absl::Status failure;
    {
      std::lock_guard lock(mu_);
      accepted_ = EncodeAccepted(upload->Accepted(env_->window_bytes));
      is_first_ = first;
      upload_ = upload;
      failure = failure_;
    }
    // The call may have been cancelled before there was an upload to tell.
    if (!failure.ok()) upload->Fail(failure, Stage::kQueue);
  }

  absl::Status ReceiveChunk(int slot, const StreamChunk& chunk) {
    if (upload_ == nullptr) {
      return InvalidField("message", "a chunk",
                          "first a header or a join: no upload is open");
    }
    upload_->bytes_in += static_cast<int64_t>(messages_[slot].Length());
    ASSIGN_OR_RETURN(const ChunkPlace place, upload_->Reserve(chunk));
    if (chunk.bytes <= kInlineCopyBytes) {
      upload_->Fill(messages_[slot], chunk, place);
      messages_[slot].Clear();
      ReadInto(slot);
      return absl::OkStatus();
    }
    ReadIntoFree(slot);
    env_->engine->CopyAsync(
        1,
        [call = shared_from_this(), slot, chunk, place](int) {
          call->upload_->Fill(call->messages_[slot], chunk, place);
          call->messages_[slot].Clear();
        },
        [call = shared_from_this(), slot] { call->ReleaseSlot(slot); });
    return absl::OkStatus();
  }

  void ReadInto(int slot) {
    std::lock_guard lock(mu_);
    if (finished_) return;
    reading_ = slot;
    StartRead(&messages_[slot]);
  }

  // `busy` is being copied.
  void ReadIntoFree(int busy) {
    std::lock_guard lock(mu_);
    busy_[busy] = true;
    reading_ = -1;
    if (finished_) return;
    for (int slot = 0; slot < kStreamMessages; ++slot) {
      if (busy_[slot]) continue;
      reading_ = slot;
      StartRead(&messages_[slot]);
      return;
    }
  }

  void ReleaseSlot(int slot) {
    std::lock_guard lock(mu_);
    busy_[slot] = false;
    if (reading_ >= 0 || finished_) return;
    reading_ = slot;
    StartRead(&messages_[slot]);
  }

  // mu_ held, in all below.

  void Write() {
    writing_ = true;
    if (upload_ != nullptr) {
      upload_->bytes_out += static_cast<int64_t>(reply_.Length());
    }
    StartWrite(&reply_);
  }

  void FinishWithAnswer() {
    finished_ = true;
    AttendOutcome outcome =
        OutcomeOfAnswer(upload_->result(), timer_.started(),
                        upload_->complete_time(), Clock::now());
    outcome.method = Method::kAttendStream;
    outcome.identity = Owner();
    outcome.bytes_in = upload_->bytes_in;
    const v1::AttendResponse answer = DescribeAnswer(
        upload_->request(), upload_->result(), outcome, env_->engine->device());
    reply_ = EncodeFinal(answer);
    outcome.bytes_out =
        upload_->bytes_out + static_cast<int64_t>(reply_.Length());
    env_->metrics->Finished(grpc::StatusCode::OK, outcome);
    LogAnswer(answer, outcome, trace_.trace_id(), env_->slow_request_ns);
    trace_.Respond(context_);
    trace_.End(outcome, {.request_id = request_id_,
                         .started = timer_.started(),
                         .result = &upload_->result(),
                         .submitted = upload_->complete_time()});
    place_.Release();
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void FinishWith(const absl::Status& status, Stage stage) {
    finished_ = true;
    place_.Release();
    Finish(EndWithoutAnswer(env_, context_, trace_, status,
                            {Method::kAttendStream, stage, timer_.started(),
                             request_id_, Owner(), message_bytes_}));
  }

  // Constant after construction.
  CallEnvironment* const env_;
  grpc::GenericCallbackServerContext* const context_;  // valid until OnDone
  const std::shared_ptr<const Identity> identity_;     // may be null
  const CallTrace trace_;
  CallTimer timer_;

  std::shared_ptr<AttendStreamCall> self_;  // until OnDone
  UploadPlace place_;                       // of the body on its way
  std::atomic<int64_t> message_bytes_{0};
  std::optional<ReceiveWatch::Call> watched_;  // set by Begin
  // A message is the reader's until it is busy, then the copying thread's.
  std::array<grpc::ByteBuffer, kStreamMessages> messages_;

  mutable std::mutex mu_;  // guards all that follows
  // Written once, by the reader, which may read it without the lock; so may
  // the copies it started.
  std::shared_ptr<Upload> upload_;
  bool is_first_ = false;
  std::string request_id_;
  int reading_ = -1;  // the slot of the outstanding read; -1 = none
  std::array<bool, kStreamMessages> busy_{};
  grpc::ByteBuffer accepted_;  // to be sent before anything else
  grpc::ByteBuffer reply_;     // being sent
  bool writing_ = false;
  bool finished_ = false;
  absl::Status failure_;
};

}  // namespace

grpc::ServerGenericBidiReactor* StartAttendStreamCall(
    CallEnvironment* environment, grpc::GenericCallbackServerContext* context,
    std::shared_ptr<const Identity> identity) {
  auto call = std::make_shared<AttendStreamCall>(environment, context,
                                                 std::move(identity));
  call->Begin();
  return call.get();
}

}  // namespace attendant::server
