#include "server/calls/attend_call.h"

#include <grpcpp/alarm.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "kernels/base/status_macros.h"
#include "server/calls/attend_reply.h"
#include "server/calls/call_timer.h"
#include "server/calls/tensor_copy.h"
#include "server/calls/unanswered_call.h"
#include "server/log/log.h"
#include "server/regions/region_service.h"
#include "server/regions/request_regions.h"
#include "server/request/errors.h"
#include "server/request/problem_validator.h"
#include "server/request/wire_codec.h"

namespace attendant::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// gRPC may tell of a broken body before it tells that the call is cancelled.
constexpr milliseconds kCancelGrace{200};

class AttendCall final : public grpc::ServerGenericBidiReactor,
                         public std::enable_shared_from_this<AttendCall> {
 public:
  AttendCall(CallEnvironment* environment,
             grpc::GenericCallbackServerContext* context, const UnaryDoor& door,
             std::shared_ptr<const Identity> identity)
      : env_(environment),
        context_(context),
        door_(door),
        identity_(std::move(identity)),
        trace_(*context, environment->tracer),
        timer_(context, environment->bounds.default_deadline_ms) {}

  void Begin() {
    self_ = shared_from_this();
    env_->metrics->Started(door_.method);
    is_open_ = true;
    ++env_->open_calls;
    const absl::Status refused = upload_.Take(
        &env_->uploads, identity_ != nullptr ? identity_->name : "");
    // After the counts: a drain sees this call, or this call sees the drain.
    if (env_->draining) {
      FinishWithError(absl::UnavailableError("the server is draining"),
                      Stage::kReceive);
      return;
    }
    // Its body is not read: callers who are refused keep no others out.
    if (!refused.ok()) return FinishWithError(refused, Stage::kReceive);
    timer_.Start([weak = weak_from_this()] {
      if (const auto call = weak.lock(); call != nullptr) call->Expire();
    });
    watched_.emplace(&env_->watch, context_->peer(),
                     env_->bounds.max_request_bytes, [weak = weak_from_this()] {
                       if (const auto call = weak.lock()) call->CutOff();
                     });
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (ok) {
      message_bytes_ = static_cast<int64_t>(message_.Length());
      watched_->Delivered(message_bytes_, 0);
      if (absl::Status status = Receive(); !status.ok()) {
        FinishWithError(status, Stage::kReceive);
      }
      return;
    }
    if (context_->IsCancelled()) return;  // OnCancel ends the call
    no_message_alarm_.Set(system_clock::now() + kCancelGrace,
                          [weak = weak_from_this()](bool fired) {
                            const auto call = fired ? weak.lock() : nullptr;
                            if (call != nullptr) {
                              call->FinishWithError(
                                  absl::InvalidArgumentError(
                                      "the method takes one request message"),
                                  Stage::kReceive);
                            }
                          });
  }

  void OnCancel() override { Abort(timer_.WhyCancelled()); }

  void OnDone() override {
    timer_.Done();
    watched_.reset();
    if (is_open_) --env_->open_calls;
    const std::shared_ptr<AttendCall> last = std::move(self_);
  }

 private:
  // The deadline passed: ends the call, or the sending of its reply.
  void Expire() {
    bool sending = false;
    {
      std::lock_guard lock(mu_);
      sending = finished_;
    }
    if (sending) {
      timer_.CancelCall();
    } else {
      Abort(CallTimer::DeadlinePassed());
    }
  }

  // More is arriving than any message may have.
  void CutOff() {
    FinishWithError(
        InvalidField("message", "longer than its bound",
                     "at most max_request_bytes, " +
                         std::to_string(env_->bounds.max_request_bytes)),
        Stage::kReceive);
  }

  // Everything before the queue.
  absl::Status Receive() {
    if (message_bytes_ > env_->bounds.max_request_bytes) {
      return InvalidField("message",
                          std::to_string(message_bytes_.load()) + " bytes",
                          "at most max_request_bytes, " +
                              std::to_string(env_->bounds.max_request_bytes));
    }
    ASSIGN_OR_RETURN(DecodedCall decoded, door_.decode(message_));
    encode_ = std::move(decoded.encode);
    const ParsedRequest& parsed = decoded.request;
    const Clock::time_point deadline =
        decoded.timeout.has_value()
            ? std::min(timer_.deadline(), timer_.started() + *decoded.timeout)
            : timer_.deadline();
    {
      std::lock_guard lock(mu_);  // an abort may be logging
      request_id_ = parsed.header.request_id();
    }
    ASSIGN_OR_RETURN(std::unique_ptr<ValidatedRequest> request,
                     ValidateRequest(parsed, env_->bounds,
                                     env_->engine->device().properties));
    if (identity_ != nullptr) ApplyIdentity(*identity_, request.get());
    RETURN_IF_ERROR(PlaceRegions(RegionOwner(*context_), parsed.header,
                                 env_->engine->device().is_cuda, &env_->regions,
                                 request.get()));
    const int64_t bytes = request->input_bytes;
    const bool shared = bytes <= kSharedCopyBytes;
    pieces_ = CutIntoPieces(parsed, *request,
                            shared ? kSharedPieceBytes : kCopyPieceBytes);
    ASSIGN_OR_RETURN(job_, env_->engine->Admit(std::move(request), deadline));
    const int pieces = pieces_left_ = static_cast<int>(pieces_.size());
    int helpers = shared ? std::min(kCopyHelpers, pieces - 1) : pieces;
    if (bytes <= kInlineCopyBytes) helpers = 0;
    if (helpers > 0) {
      env_->engine->CopyAsync(
          helpers, [call = shared_from_this()](int) { call->CopyPieces(); },
          [] {});
    }
    if (shared) CopyPieces();
    if (pieces == 0) SubmitJob();
    return absl::OkStatus();
  }

  // Who ends the last one goes on. Several threads at once.
  void CopyPieces() {
    for (size_t i = next_piece_++; i < pieces_.size(); i = next_piece_++) {
      Copy(pieces_[i]);
      if (--pieces_left_ == 0) SubmitJob();
    }
  }

  // Pieces write to disjoint places.
  void Copy(const CopyPiece& piece) {
    NoteCopy(CopyPieceInto(message_, piece, job_->input.data()));
  }
  void NoteCopy(const absl::Status& status) {
    std::lock_guard lock(mu_);
    if (!status.ok()) copy_status_ = status;
  }

  void SubmitJob() {
    message_.Clear();  // the tensors are in the pool now
    upload_.Release();
    const std::vector<void*> events = ReadyEventsOf(*job_->request);
    if (events.empty()) return SubmitReady();
    env_->event_waits.After(
        events,
        [call = shared_from_this()] {
          std::lock_guard lock(call->mu_);
          return call->finished_;
        },
        [call = shared_from_this()](const absl::Status& status) {
          call->NoteCopy(status);
          call->SubmitReady();
        });
  }

  // Everything that the job reads is where it shall be.
  void SubmitReady() {
    std::shared_ptr<AttentionJob> job;
    absl::Status status;
    {
      std::lock_guard lock(mu_);
      status = copy_status_;
      if (status.ok() && !finished_) {
        job = job_;
        job->done = [call = shared_from_this()](const JobResult& result) {
          call->OnResult(result);
        };
        submitted_ = Clock::now();
        in_engine_ = true;
      }
    }
    if (job == nullptr) {
      job_.reset();  // gives its memory back
      if (!status.ok()) FinishWithError(status, Stage::kReceive);
      return;
    }
    env_->engine->Submit(job);
    // An abort between the lock above and Submit found nothing to cancel.
    bool aborted = false;
    {
      std::lock_guard lock(mu_);
      aborted = !abort_status_.ok();
    }
    if (aborted) env_->engine->Cancel(job);
  }

  // The caller is gone or its time is over: ends the call now, or, once the
  // engine has the job, as soon as the engine lets go of it.
  void Abort(const absl::Status& status) {
    std::shared_ptr<AttentionJob> job;
    {
      std::lock_guard lock(mu_);
      if (finished_) return;
      if (abort_status_.ok()) abort_status_ = status;
      if (in_engine_) job = job_;
    }
    if (job != nullptr) {
      env_->engine->Cancel(job);
    } else {
      FinishWithError(status, Stage::kReceive);
    }
  }

  void OnResult(const JobResult& result) {
    std::shared_ptr<AttentionJob> job;
    absl::Status status;
    {
      std::lock_guard lock(mu_);
      in_engine_ = false;
      job = std::move(job_);
      // Nobody waits for the answer of an aborted call, even if there is one.
      status = abort_status_.ok() ? result.status : abort_status_;
    }
    if (!status.ok()) {
      job.reset();
      FinishWithError(status, result.stage);
      return;
    }
    if (const std::vector<StagedOutput> staged =
            StagedOutputs(*job->request, kCopyPieceBytes);
        !staged.empty()) {
      return StoreThenFinish(job, result, staged);
    }
    FinishWithReply(std::move(job), result);
  }

  // Outputs that were computed in the job's block go to their regions first.
  void StoreThenFinish(const std::shared_ptr<AttentionJob>& job,
                       const JobResult& result,
                       const std::vector<StagedOutput>& staged) {
    env_->engine->CopyAsync(
        static_cast<int>(staged.size()),
        [call = shared_from_this(), job, staged](int part) {
          call->NoteCopy(WriteStagedOutput(staged[part], job->output->data()));
        },
        [call = shared_from_this(), job, result] {
          absl::Status status;
          {
            std::lock_guard lock(call->mu_);
            status = call->copy_status_;
          }
          if (status.ok()) return call->FinishWithReply(job, result);
          call->FinishWithError(status, Stage::kSend);
        });
  }

  void FinishWithReply(std::shared_ptr<AttentionJob> job,
                       const JobResult& result) {
    if (!TakeFinish()) return;
    const ValidatedRequest& request = *job->request;
    AttendOutcome outcome =
        OutcomeOfAnswer(result, timer_.started(), submitted_, Clock::now());
    outcome.method = door_.method;
    if (identity_ != nullptr) outcome.identity = identity_->name;
    outcome.bytes_in = message_bytes_;
    const v1::AttendResponse header =
        DescribeAnswer(request, result, outcome, env_->engine->device());
    reply_ = encode_(
        header, job->output,
        request.output_place.in_region() ? 0 : request.wire_output_bytes(),
        request.lse_offset,
        request.lse_place.in_region() ? 0 : request.lse_bytes);
    job.reset();  // the reply holds the output block
    outcome.bytes_out = static_cast<int64_t>(reply_.Length());
    env_->metrics->Finished(grpc::StatusCode::OK, outcome);
    LogAnswer(header, outcome, trace_.trace_id(), env_->slow_request_ns);
    trace_.Respond(context_);
    trace_.End(outcome, {.request_id = header.request_id(),
                         .started = timer_.started(),
                         .result = &result,
                         .submitted = submitted_});
    StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
  }

  // True for the first who wants to end the call; only that one may.
  bool TakeFinish() {
    std::lock_guard lock(mu_);
    return !std::exchange(finished_, true);
  }

  void FinishWithError(const absl::Status& status, Stage stage) {
    if (!TakeFinish()) return;
    no_message_alarm_.Cancel();
    UnansweredCall call{door_.method, stage, timer_.started()};
    call.bytes_in = message_bytes_;
    if (identity_ != nullptr) call.identity = identity_->name;
    {
      std::lock_guard lock(mu_);
      call.request_id = request_id_;
    }
    Finish(EndWithoutAnswer(env_, context_, trace_, status, call));
  }

  // Constant after construction.
  CallEnvironment* const env_;
  grpc::GenericCallbackServerContext* const context_;  // valid until Finish
  const UnaryDoor& door_;
  const std::shared_ptr<const Identity> identity_;  // may be null
  const CallTrace trace_;
  CallTimer timer_;

  std::shared_ptr<AttendCall> self_;  // until OnDone
  bool is_open_ = false;              // counted in open_calls
  grpc::ByteBuffer message_;
  grpc::ByteBuffer reply_;  // until OnDone
  std::atomic<int64_t> message_bytes_{0};
  std::vector<CopyPiece> pieces_;  // constant once they are copied
  std::atomic<size_t> next_piece_{0};
  std::atomic<int> pieces_left_{0};
  decltype(DecodedCall::encode) encode_;  // from Receive on
  Clock::time_point submitted_;
  UploadPlace upload_;
  std::optional<ReceiveWatch::Call> watched_;
  // It keeps its callback, which therefore must not own this object.
  grpc::Alarm no_message_alarm_;

  mutable std::mutex mu_;
  std::string request_id_;
  std::shared_ptr<AttentionJob> job_;
  bool in_engine_ = false;  // submitted, and not yet done
  bool finished_ = false;
  absl::Status copy_status_;
  absl::Status abort_status_;  // OK = nobody wants the call to end
};

absl::StatusOr<DecodedCall> DecodeAttend(const grpc::ByteBuffer& message) {
  DecodedCall call;
  ASSIGN_OR_RETURN(call.request, ParseAttendRequest(message));
  call.encode = EncodeAttendResponse;
  return call;
}

}  // namespace

const UnaryDoor kAttendDoor = {Method::kAttend, DecodeAttend};

grpc::ServerGenericBidiReactor* StartAttendCall(
    CallEnvironment* environment, grpc::GenericCallbackServerContext* context,
    const UnaryDoor& door, std::shared_ptr<const Identity> identity) {
  auto call = std::make_shared<AttendCall>(environment, context, door,
                                           std::move(identity));
  call->Begin();
  return call.get();
}

}  // namespace attendant::server
