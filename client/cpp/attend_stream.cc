#include "client/cpp/attend_stream.h"

#include <grpcpp/client_context.h>
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/generic_stub.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/borrowed_memory.h"
#include "client/cpp/chunk_plan.h"
#include "client/cpp/start_thread.h"
#include "client/cpp/status_decoder.h"
#include "client/cpp/stream_reply.h"

namespace attendant::client {
namespace {

constexpr char kAttendStream[] = "/attendant.v1.AttentionService/AttendStream";
constexpr int64_t kChunkBytes = int64_t{4} << 20;
// With several streams: small enough that all end at about the same time.
constexpr int64_t kStripedChunkBytes = int64_t{1} << 20;
// Of tensors, from which a second thread for the one stream pays.
constexpr int64_t kTwoThreadsBytes = int64_t{16} << 20;

void AppendVarint(uint64_t value, std::string* bytes) {
  while (value >= 0x80) {
    bytes->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  bytes->push_back(static_cast<char>(value));
}

void AppendLengthTag(int field, int64_t bytes, std::string* out) {
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(static_cast<uint64_t>(bytes), out);
}

absl::Status Broken(const char* how) {
  return absl::InternalError(
      absl::StrCat("the server's reply breaks the contract: ", how));
}

// A stream message around `part`'s bytes.
grpc::ByteBuffer PartMessage(int field, const std::string& part) {
  std::string bytes;
  AppendLengthTag(field, static_cast<int64_t>(part.size()), &bytes);
  const grpc::Slice slices[] = {grpc::Slice(bytes), grpc::Slice(part)};
  return grpc::ByteBuffer(slices, 2);
}

// What the streams of one call share. Thread-safe.
class SharedCall {
 public:
  SharedCall(const AttendArgs& args, const EncodedHeader& header,
             int64_t chunk_bytes)
      : answer(args), header_(header), args_(args), chunk_bytes_(chunk_bytes) {}

  // After the server has accepted.
  void Plan(int64_t max_chunk_bytes) {
    const int64_t bytes = std::min(chunk_bytes_, max_chunk_bytes / 8 * 8);
    chunks_ = PlanChunks(args_, header_.tensors, std::max<int64_t>(8, bytes));
  }
  // The next chunk as a message; false if there is none left.
  bool TakeChunk(grpc::ByteBuffer* message) {
    const size_t c = next_.fetch_add(1);
    if (c >= chunks_.size()) return false;
    *message = ChunkMessage(chunks_[c]);
    return true;
  }
  void WaitUntilReturned() { borrowed_.WaitUntilReturned(); }

  absl::Status TakeReply(const grpc::ByteBuffer& message,
                         const StreamReply& chunk) {
    absl::Status status = answer.Take(message, chunk);
    Note();
    return status;
  }
  // A joined stream has ended.
  void NoteEnd() {
    ++ended_;
    Note();
  }
  // Until every byte of the answer is there, or `streams` have ended.
  void WaitForAnswer(int streams) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return answer.is_whole() || ended_ >= streams; });
  }

  StreamedAnswer answer;

 private:
  grpc::ByteBuffer ChunkMessage(const PlannedChunk& chunk) {
    const NamedTensor& tensor = header_.tensors[chunk.tensor];
    v1::TensorChunk fields;
    fields.set_tensor(static_cast<v1::StreamTensor>(
        v1::STREAM_TENSOR_Q + static_cast<int>(tensor.field)));
    fields.set_byte_offset(chunk.offset);
    std::string inner = fields.SerializeAsString();
    AppendLengthTag(v1::TensorChunk::kDataFieldNumber, chunk.bytes, &inner);
    std::string head;
    AppendLengthTag(v1::AttendStreamRequest::kChunkFieldNumber,
                    static_cast<int64_t>(inner.size()) + chunk.bytes, &head);
    std::vector<grpc::Slice> slices;
    slices.emplace_back(head + inner);
    int64_t skip = chunk.offset;
    int64_t left = chunk.bytes;
    for (const auto& piece : tensor.bytes.pieces) {
      const auto size = static_cast<int64_t>(piece.size());
      if (skip < size && left > 0) {
        const int64_t count = std::min(size - skip, left);
        slices.push_back(borrowed_.Lend(piece.subspan(
            static_cast<size_t>(skip), static_cast<size_t>(count))));
        left -= count;
      }
      skip = std::max<int64_t>(0, skip - size);
    }
    return grpc::ByteBuffer(slices.data(), slices.size());
  }

  void Note() {
    { std::lock_guard lock(mutex_); }  // a waiter is asleep or looks again
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> ended_{0};
  const EncodedHeader& header_;
  const AttendArgs& args_;
  const int64_t chunk_bytes_;
  BorrowedMemory borrowed_;
  std::vector<PlannedChunk> chunks_;
  std::atomic<size_t> next_{0};
};

// One stream on its own connection and completion queue. Its events are handled
// by the thread that calls Run, and by a second one if asked for: gRPC copies
// to and from the socket on the threads that wait for events, so one sends
// while the other receives.
class Stream {
 public:
  Stream(SharedCall* call, const ConnectionSet& connections,
         std::shared_ptr<grpc::Channel> channel, SteadyTime deadline)
      : call_(call), stub_(std::move(channel)) {
    connections.Prepare(&context_, deadline);
  }

  // Sends `first`, calls `accepted` when the server's acceptance has come, then
  // moves chunks both ways until the stream ends. `half_close`: tell when the
  // last chunk is sent.
  template <typename Accepted>
  absl::Status Run(const grpc::ByteBuffer& first, bool half_close,
                   bool two_threads, const Accepted& accepted) {
    half_close_ = half_close;
    // Corked: the call travels with its first message, and has no event of its
    // own.
    context_.set_initial_metadata_corked(true);
    stream_ = stub_.PrepareCall(&context_, kAttendStream, &queue_);
    stream_->StartCall(nullptr);
    Write(first);
    Read();
    {
      std::jthread second;  // one does the work of both if it cannot be had
      if (two_threads) second = StartThread([&] { HandleEvents(accepted); });
      HandleEvents(accepted);
    }
    // What this side found wrong explains the rest.
    return own_error_.ok() ? DecodeStatus(status_) : own_error_;
  }

  // Any thread, also before and after Run.
  void Cancel() { context_.TryCancel(); }
  bool was_accepted() const { return accepted_; }

  const v1::AttendResponse& final() const { return final_; }
  bool has_final() const { return has_final_; }
  std::optional<std::string> pushback() const { return PushbackOf(context_); }

 private:
  enum Event : intptr_t { kWrite = 1, kWritesDone, kRead, kFinish };
  static void* TagOf(Event event) { return reinterpret_cast<void*>(event); }

  // Until the last event was handled.
  template <typename Accepted>
  void HandleEvents(const Accepted& accepted) {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
      Handle(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok, accepted);
      if (--pending_ == 0) queue_.Shutdown();
    }
  }

  template <typename Accepted>
  void Handle(Event event, bool ok, const Accepted& accepted) {
    switch (event) {
      case kWrite: {
        std::lock_guard lock(write_mutex_);
        message_.Clear();
        writing_ = false;
        if (ok) WriteNext();
        return;
      }
      case kRead:
        if (!ok) return Finish();
        if (absl::Status status = Receive(accepted); !status.ok()) {
          own_error_ = status;
          context_.TryCancel();
        }
        return Read();
      case kWritesDone:
      case kFinish:
        return;
    }
  }

  template <typename Accepted>
  absl::Status Receive(const Accepted& accepted) {
    absl::StatusOr<StreamReply> reply = ParseStreamReply(reply_);
    if (!reply.ok()) return reply.status();
    if (reply->part.has_chunk()) {
      absl::Status status = call_->TakeReply(reply_, *reply);
      reply_.Clear();
      return status;
    }
    if (reply->part.has_final()) {
      final_ = reply->part.final();
      has_final_ = true;
      return absl::OkStatus();
    }
    if (accepted_) return Broken("the request is accepted twice");
    absl::Status status = accepted(reply->part.accepted());
    if (!status.ok()) return status;
    std::lock_guard lock(write_mutex_);
    accepted_ = true;
    WriteNext();
    return absl::OkStatus();
  }

  // write_mutex_ held.
  void WriteNext() {
    if (!accepted_ || writing_ || closed_) return;
    if (call_->TakeChunk(&message_)) return Write(message_);
    closed_ = true;
    if (!half_close_) return;
    ++pending_;
    stream_->WritesDone(TagOf(kWritesDone));
  }

  void Write(const grpc::ByteBuffer& message) {
    writing_ = true;
    ++pending_;
    stream_->Write(message, TagOf(kWrite));
  }
  void Read() {
    ++pending_;
    stream_->Read(&reply_, TagOf(kRead));
  }
  void Finish() {
    ++pending_;
    stream_->Finish(&status_, TagOf(kFinish));
  }

  SharedCall* const call_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::atomic<int> pending_{0};  // events that will come
  bool half_close_ = false;
  std::atomic<bool> accepted_{false};
  std::mutex write_mutex_;
  bool writing_ = false;      // guarded by write_mutex_, as the next two
  bool closed_ = false;       // no chunk is left
  grpc::ByteBuffer message_;  // being sent
  // Of the one read at a time.
  grpc::ByteBuffer reply_;
  v1::AttendResponse final_;
  bool has_final_ = false;
  grpc::Status status_;
  absl::Status own_error_;
};

// Further streams of a call, each on its thread.
class JoinedStreams {
 public:
  // On all channels but the first.
  JoinedStreams(SharedCall* call, const ConnectionSet& connections,
                const std::vector<std::shared_ptr<grpc::Channel>>& channels,
                SteadyTime deadline)
      : call_(call) {
    for (size_t c = 1; c < channels.size(); ++c) {
      streams_.push_back(
          std::make_unique<Stream>(call, connections, channels[c], deadline));
    }
  }
  ~JoinedStreams() { Join(); }

  void Start(const std::string& upload_id) {
    v1::JoinUpload join;
    join.set_upload_id(upload_id);
    const grpc::ByteBuffer first = PartMessage(
        v1::AttendStreamRequest::kJoinFieldNumber, join.SerializeAsString());
    for (const auto& stream : streams_) {
      auto thread = StartThread([call = call_, stream = stream.get(), first] {
        // The first stream's end says how the call went: one that could not
        // join took no chunk, and one that was lost ends them all.
        stream
            ->Run(first, /*half_close=*/true, /*two_threads=*/false,
                  [](const v1::UploadAccepted&) { return absl::OkStatus(); })
            .IgnoreError();
        call->NoteEnd();
      });
      if (!thread.joinable()) call_->NoteEnd();  // as one that could not join
      threads_.push_back(std::move(thread));
    }
  }
  void Cancel() {
    for (const auto& stream : streams_) stream->Cancel();
  }
  // Those that may still be looking for the server: nobody needs them now.
  void CancelUnaccepted() {
    for (const auto& stream : streams_) {
      if (!stream->was_accepted()) stream->Cancel();
    }
  }
  void Join() { threads_.clear(); }

  int count() const { return static_cast<int>(streams_.size()); }

 private:
  SharedCall* const call_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::vector<std::jthread> threads_;
};

}  // namespace

StreamOutcome AttendOverStreams(ConnectionSet& connections, int streams,
                                const AttendArgs& args,
                                const EncodedHeader& header,
                                SteadyTime deadline,
                                const std::stop_token& stop) {
  SharedCall call(args, header, streams > 1 ? kStripedChunkBytes : kChunkBytes);
  StreamOutcome outcome;
  {
    const auto channels = connections.Take(streams);
    Stream first(&call, connections, channels[0], deadline);
    JoinedStreams joined(&call, connections, channels, deadline);
    const std::stop_callback cancel(stop, [&] {
      first.Cancel();
      joined.Cancel();
    });
    outcome.status =
        first.Run(PartMessage(v1::AttendStreamRequest::kHeaderFieldNumber,
                              header.message),
                  /*half_close=*/streams == 1,
                  streams == 1 && header.tensor_bytes >= kTwoThreadsBytes,
                  [&](const v1::UploadAccepted& accepted) {
                    absl::Status status = call.answer.Prepare(accepted);
                    if (!status.ok()) return status;
                    call.Plan(accepted.max_chunk_bytes());
                    joined.Start(accepted.upload_id());
                    return status;
                  });
    outcome.pushback = first.pushback();
    if (outcome.status.ok()) {
      // A stream that the server let in may carry a part of the answer before
      // this side has read of it.
      call.WaitForAnswer(joined.count());
      joined.CancelUnaccepted();
    } else {
      joined.Cancel();
    }
    joined.Join();
    if (outcome.status.ok() && !(first.was_accepted() && first.has_final())) {
      outcome.status = Broken(first.was_accepted() ? "it has no final message"
                                                   : "it accepted no request");
    }
    if (outcome.status.ok()) {
      absl::StatusOr<AttendResult> result = call.answer.Finish(first.final());
      outcome.status = result.status();
      if (result.ok()) outcome.result = *std::move(result);
    }
  }
  call.WaitUntilReturned();
  return outcome;
}

}  // namespace attendant::client
