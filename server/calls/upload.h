// One upload: an admitted job whose tensors arrive in chunks over one or more
// streams, and whose answer leaves over them. Knows nothing of reactors.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/calls/upload_claims.h"
#include "server/calls/upload_parts.h"
#include "server/engine/attention_engine.h"
#include "server/engine/byte_ranges.h"
#include "server/request/stream_message.h"

namespace attendant::server {

// A stream of an upload, as the upload sees it.
class UploadStream {
 public:
  virtual ~UploadStream() = default;
  // Ask Upload::Next again. Any thread, no lock of the upload held.
  virtual void Wake() = 0;
};

// What a stream should send next.
struct UploadOutput {
  enum class Kind {
    kNothing,  // wait for Wake
    kChunk,    // the fields below
    kAnswer,   // the first stream: result() says the rest, then it ends
    kEnd,      // further streams: nothing more to carry
    kFailed,   // status() says why
  } kind = Kind::kNothing;
  v1::StreamTensor tensor = v1::STREAM_TENSOR_UNSPECIFIED;
  int64_t byte_offset = 0;   // in the tensor
  int64_t block_offset = 0;  // in output()
  int64_t bytes = 0;
};

// Thread-safe. Its streams keep it alive.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  // `job` was admitted and not submitted; it is the upload's from now on. `id`
  // is what JoinUpload must say.
  static std::shared_ptr<Upload> Start(AttentionEngine* engine,
                                       std::shared_ptr<AttentionJob> job,
                                       std::string id, std::string owner,
                                       const std::shared_ptr<UploadStream>& by);
  ~Upload();

  const std::string& id() const { return id_; }
  // Who may join; "" where callers are not told apart.
  const std::string& owner() const { return owner_; }
  const ValidatedRequest& request() const { return *job_->request; }
  // What the server says to a stream that it lets in.
  v1::UploadAccepted Accepted(int64_t window_bytes) const;

  // A further stream. INVALID_ARGUMENT beyond kMaxStreams; NOT_FOUND if the
  // upload has ended.
  absl::Status Join(const std::shared_ptr<UploadStream>& stream);
  // A stream sends no more chunks (once for each). If none will and bytes are
  // missing, the upload fails.
  void NoMoreChunks();

  // Where a chunk's bytes go; the place is taken at once. Errors:
  // UploadClaims::Claim.
  absl::StatusOr<ChunkPlace> Reserve(const StreamChunk& chunk);
  // Copies a reserved chunk's bytes and starts what became possible. Several
  // threads at once.
  void Fill(const grpc::ByteBuffer& message, const StreamChunk& chunk,
            const ChunkPlace& place);

  // Ends the upload for all its streams, unless it has failed already or its
  // answer is on its way.
  void Fail(const absl::Status& status, Stage stage);

  // `first`: asked by the stream that brought the header.
  UploadOutput Next(bool first);
  const std::shared_ptr<HostBlock>& output() const { return output_; }

  absl::Status status() const;                         // of kFailed
  Stage failed_stage() const;                          // of kFailed
  const JobResult& result() const { return result_; }  // of kAnswer
  // When the last input byte was in place; of kAnswer.
  Clock::time_point complete_time() const { return job_->input_complete; }
  // Every byte has its place taken.
  bool all_reserved() const;

  // Message bytes of all streams.
  std::atomic<int64_t> bytes_in{0};
  std::atomic<int64_t> bytes_out{0};

 private:
  Upload(AttentionEngine* engine, std::shared_ptr<AttentionJob> job,
         std::string id, std::string owner);
  void Begin();
  void OnItemDone(const ItemRange& range);
  void OnResult(JobResult result);
  // mu_ held.
  bool filled() const { return filled_bytes_ == claims_.total_bytes(); }
  void Offer(ByteRange output_range);
  // mu_ not held.
  void StartItems(const std::vector<size_t>& items);
  void Submit();
  void WakeAll();

  AttentionEngine* const engine_;
  const std::shared_ptr<AttentionJob> job_;
  const std::string id_;
  const std::string owner_;
  const std::shared_ptr<HostBlock> output_;
  std::shared_ptr<HostBlock> input_;  // of a job in parts; constant
  std::byte* input_memory_ = nullptr;
  JobResult result_;  // constant once answered_

  mutable std::mutex mu_;  // guards all that follows
  std::vector<std::weak_ptr<UploadStream>> streams_;
  int64_t writers_ = 1;  // streams that may send chunks
  UploadClaims claims_;
  int64_t filled_bytes_ = 0;
  UploadParts parts_;
  bool submitted_ = false;  // a job without items, that is
  ByteRanges offered_;      // of the output block
  std::deque<ByteRange> outputs_;
  bool answered_ = false;
  bool closed_ = false;  // the answer is on its way
  absl::Status status_;
  Stage failed_stage_ = Stage::kReceive;
};

}  // namespace attendant::server
