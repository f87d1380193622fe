#include "client/cpp/placed_calls.h"

#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/tensor_bytes.h"

namespace attendant::client {
namespace {

constexpr int64_t kAlignment = 256;
constexpr std::chrono::seconds kPreparePatience{60};

// `status`, unless the reason is that there is no time left.
absl::Status EndedBy(PlacedCalls::Deadline deadline, absl::Status status) {
  const bool late = std::chrono::steady_clock::now() >= deadline;
  if (!late || (!status.ok() && !absl::IsUnavailable(status))) return status;
  return absl::DeadlineExceededError(
      absl::StrCat("the deadline passed before the call was sent",
                   status.ok() ? "" : ": ", status.message()));
}

// Bytes of O and LSE; -1 if the arguments do not tell.
struct AnswerBytes {
  int64_t out = -1;
  int64_t lse = 0;
};

AnswerBytes AnswerOf(const AttendArgs& args) {
  const TensorView& first = args.qkv.given() ? args.qkv : args.q;
  std::vector<int64_t> shape = first.shape;
  if (shape.size() < 3) return {};
  if (args.qkv.given()) {
    const bool grouped = args.num_q_heads > 0;
    if (grouped) shape[shape.size() - 2] = args.num_q_heads;
    if (!grouped) shape.erase(shape.end() - 3);
  } else if (!args.v.shape.empty()) {
    shape.back() = args.v.shape.back();
  }
  const absl::StatusOr<int64_t> elements = NumElements(shape);
  if (!elements.ok() || shape.empty() || shape.back() <= 0) return {};
  const DataType dtype =
      args.output_dtype == DataType::kUnset ? first.dtype : args.output_dtype;
  return {NumBytes(dtype, *elements),
          args.return_lse ? *elements / shape.back() * 4 : 0};
}

// What the tensors of `args` and their answer take in shared memory.
absl::StatusOr<int64_t> BytesNeeded(const AttendArgs& args) {
  int64_t bytes = 0;
  for (const TensorView* view :
       {&args.q, &args.k, &args.v, &args.qkv, &args.mask}) {
    if (!view->given()) continue;
    const absl::StatusOr<TensorBytes> tensor = BytesOf("tensor", *view);
    if (!tensor.ok()) return tensor.status();
    bytes += tensor->num_bytes + kAlignment;
  }
  const AnswerBytes answer = AnswerOf(args);
  if (answer.out < 0)
    return InvalidField("q.shape", "too short", "of a tensor");
  return bytes + answer.out + answer.lse + 2 * kAlignment;
}

absl::Status MoveTensor(const char* name, DoorMemory* memory,
                        TensorView* view) {
  if (!view->given()) return absl::OkStatus();
  const absl::StatusOr<TensorBytes> tensor = BytesOf(name, *view);
  if (!tensor.ok()) return tensor.status();
  std::byte* at = memory->Allocate(tensor->num_bytes);
  if (at == nullptr) return absl::InternalError("the memory is too small");
  view->data = at;
  view->strides = tensor->strides;
  for (const std::span<const std::byte>& piece : tensor->pieces) {
    if (absl::Status s = memory->CopyIn(at, piece); !s.ok()) return s;
    at += piece.size();
  }
  return absl::OkStatus();
}

// `args` with everything in `memory`, which has room.
absl::StatusOr<AttendArgs> Moved(const AttendArgs& args, DoorMemory* memory) {
  AttendArgs moved = args;
  const struct {
    const char* name;
    TensorView* view;
  } tensors[] = {{"q", &moved.q},
                 {"k", &moved.k},
                 {"v", &moved.v},
                 {"qkv", &moved.qkv},
                 {"mask", &moved.mask}};
  for (const auto& [name, view] : tensors) {
    if (absl::Status status = MoveTensor(name, memory, view); !status.ok()) {
      return status;
    }
  }
  const AnswerBytes answer = AnswerOf(args);
  moved.out = {memory->Allocate(answer.out), static_cast<size_t>(answer.out)};
  if (answer.lse > 0) {
    moved.lse = {memory->Allocate(answer.lse), static_cast<size_t>(answer.lse)};
  }
  if (memory->is_named()) moved.shared = {memory->range()};
  return moved;
}

// The answer out of `memory` into the caller's, or into its own.
absl::Status MoveBack(const char* name, std::span<std::byte> to,
                      DoorMemory* memory, Tensor* tensor) {
  if (tensor->data == nullptr) return absl::OkStatus();
  const auto bytes = static_cast<size_t>(tensor->num_bytes);
  if (to.empty()) {
    tensor->storage = NewTensorMemory(tensor->num_bytes);
    to = {tensor->storage.get(), bytes};
  } else if (to.size() != bytes) {
    return InvalidField(name, absl::StrCat(to.size(), " bytes"),
                        absl::StrCat(bytes, " bytes"));
  }
  absl::Status status =
      memory->CopyOut(to.data(), tensor->data, tensor->num_bytes);
  tensor->data = to.data();
  tensor->cuda_device = -1;
  return status;
}

}  // namespace

absl::StatusOr<AttendResult> PlacedCalls::Attend(const AttendArgs& args,
                                                 Deadline deadline,
                                                 const Call& call) {
  for (;;) {
    bool is_new = false;
    absl::StatusOr<std::unique_ptr<DoorMemory>> memory =
        Take(args, deadline, &is_new);
    if (!memory.ok()) return EndedBy(deadline, memory.status());
    absl::StatusOr<AttendArgs> moved = Moved(args, memory->get());
    if (!moved.ok()) return moved.status();
    absl::Status in_time = EndedBy(deadline, absl::OkStatus());
    if (!in_time.ok()) return in_time;
    absl::StatusOr<AttendResult> result = call(*moved);
    if (absl::IsNotFound(result.status()) && !is_new) {
      const std::lock_guard lock(mutex_);
      free_.clear();
      continue;
    }
    // After an error the server may still be writing: that memory goes.
    if (!result.ok()) return result;
    absl::Status status =
        MoveBack("out", args.out, memory->get(), &result->out);
    status.Update(MoveBack("lse", args.lse, memory->get(), &result->lse));
    const std::lock_guard lock(mutex_);
    free_.push_back(*std::move(memory));
    if (!status.ok()) return status;
    return result;
  }
}

absl::StatusOr<AttendArgs> PlacedCalls::Prepare(const AttendArgs& args) {
  const absl::StatusOr<int64_t> bytes = BytesNeeded(args);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::unique_ptr<DoorMemory>> memory =
      make_(*bytes, std::chrono::steady_clock::now() + kPreparePatience);
  if (!memory.ok()) return memory.status();
  absl::StatusOr<AttendArgs> moved = Moved(args, memory->get());
  const std::lock_guard lock(mutex_);
  prepared_.push_back(*std::move(memory));
  return moved;
}

absl::StatusOr<std::unique_ptr<DoorMemory>> PlacedCalls::Take(
    const AttendArgs& args, Deadline deadline, bool* is_new) {
  const absl::StatusOr<int64_t> bytes = BytesNeeded(args);
  if (!bytes.ok()) return bytes.status();
  {
    const std::lock_guard lock(mutex_);
    for (auto& candidate : free_) {
      if (candidate->range().bytes < *bytes) continue;
      std::swap(candidate, free_.back());
      std::unique_ptr<DoorMemory> taken = std::move(free_.back());
      free_.pop_back();
      taken->Reset();
      return taken;
    }
    free_.clear();  // too small: they would only pile up
  }
  *is_new = true;
  return make_(*bytes, deadline);
}

}  // namespace attendant::client
