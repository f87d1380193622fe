// AttendStreamResponse messages out of gRPC's slices, and their bytes to the
// answer's memory.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attendant/v1/attention.pb.h"
#include "client/cpp/attend_args.h"

namespace attendant::client {

// One message: `part` has no chunk data; a chunk's lie in the message.
struct StreamReply {
  v1::AttendStreamResponse part;
  int64_t data_offset = 0;
  int64_t data_bytes = 0;
};

// INTERNAL for bytes that break the contract.
absl::StatusOr<StreamReply> ParseStreamReply(const grpc::ByteBuffer& message);

// O and LSE while their chunks arrive. Thread-safe after Prepare.
class StreamedAnswer {
 public:
  explicit StreamedAnswer(const AttendArgs& args) : args_(args) {}

  // Takes the memory. INVALID_ARGUMENT if args.out or args.lse has another
  // size than the answer; INTERNAL for specs that break the contract.
  absl::Status Prepare(const v1::UploadAccepted& accepted);
  // Copies a chunk to its place; several threads at once. INTERNAL if it lies
  // outside the answer.
  absl::Status Take(const grpc::ByteBuffer& message, const StreamReply& chunk);
  // Every byte has come.
  bool is_whole();
  // The whole, once every stream has ended. INTERNAL if bytes are missing or
  // came twice.
  absl::StatusOr<AttendResult> Finish(const v1::AttendResponse& final);

 private:
  struct Taken {
    bool lse;
    int64_t begin, end;
  };
  const AttendArgs& args_;
  Tensor out_, lse_;
  std::mutex mutex_;
  std::vector<Taken> taken_;  // guarded by mutex_
  int64_t taken_bytes_ = 0;   // guarded by mutex_
};

}  // namespace attendant::client
