#include "client/cpp/shm_door.h"

#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/shared_range.h"
#include "client/cpp/shared_tensors.h"
#include "client/cpp/tensor_bytes.h"

namespace attendant::client {
namespace {

constexpr int64_t kAlignment = 256;

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

absl::Status MoveTensor(const char* name, SharedTensors* shared,
                        TensorView* view) {
  if (!view->given()) return absl::OkStatus();
  const absl::StatusOr<TensorBytes> tensor = BytesOf(name, *view);
  if (!tensor.ok()) return tensor.status();
  std::byte* at = shared->Allocate(tensor->num_bytes);
  if (at == nullptr) return absl::InternalError("shared memory is too small");
  view->data = at;
  view->strides = tensor->strides;
  for (const std::span<const std::byte>& piece : tensor->pieces) {
    std::memcpy(at, piece.data(), piece.size());
    at += piece.size();
  }
  return absl::OkStatus();
}

// `args` with everything in `shared`, which has room.
absl::StatusOr<AttendArgs> Moved(const AttendArgs& args,
                                 SharedTensors* shared) {
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
    if (absl::Status status = MoveTensor(name, shared, view); !status.ok()) {
      return status;
    }
  }
  const AnswerBytes answer = AnswerOf(args);
  moved.out = {shared->Allocate(answer.out), static_cast<size_t>(answer.out)};
  if (answer.lse > 0) {
    moved.lse = {shared->Allocate(answer.lse), static_cast<size_t>(answer.lse)};
  }
  moved.shared = {shared->range()};
  return moved;
}

// The answer out of shared memory into the caller's, or into its own.
absl::Status MoveBack(const char* name, std::span<std::byte> to,
                      Tensor* tensor) {
  if (tensor->data == nullptr) return absl::OkStatus();
  const auto bytes = static_cast<size_t>(tensor->num_bytes);
  if (to.empty()) {
    tensor->storage = std::make_unique_for_overwrite<std::byte[]>(bytes);
    to = {tensor->storage.get(), bytes};
  } else if (to.size() != bytes) {
    return InvalidField(name, absl::StrCat(to.size(), " bytes"),
                        absl::StrCat(bytes, " bytes"));
  }
  std::memcpy(to.data(), tensor->data, bytes);
  tensor->data = to.data();
  return absl::OkStatus();
}

class ShmDoor final : public Door {
 public:
  ShmDoor(Client client, std::string region_socket, std::string owner)
      : client_(std::move(client)),
        region_socket_(std::move(region_socket)),
        owner_(std::move(owner)) {}

  const std::string& name() const override {
    static const std::string name = "shm";
    return name;
  }
  DoorCapabilities capabilities() const override {
    return {.same_host_only = true};
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds timeout,
                                      std::stop_token stop) const override {
    if (!args.shared.empty()) {
      return client_.Attend(args, timeout, std::move(stop));
    }
    absl::StatusOr<std::unique_ptr<SharedTensors>> shared = Take(args);
    if (!shared.ok()) return shared.status();
    absl::StatusOr<AttendArgs> moved = Moved(args, shared->get());
    if (!moved.ok()) return moved.status();
    absl::StatusOr<AttendResult> result =
        client_.Attend(*moved, timeout, std::move(stop));
    // After an error the server may still be writing: that memory goes.
    if (!result.ok()) return result;
    absl::Status status = MoveBack("out", args.out, &result->out);
    if (status.ok()) status = MoveBack("lse", args.lse, &result->lse);
    const std::lock_guard lock(mutex_);
    free_.push_back(*std::move(shared));
    if (!status.ok()) return status;
    return result;
  }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    absl::StatusOr<std::unique_ptr<SharedTensors>> shared = Make(args);
    if (!shared.ok()) return shared.status();
    absl::StatusOr<AttendArgs> moved = Moved(args, shared->get());
    const std::lock_guard lock(mutex_);
    prepared_.push_back(*std::move(shared));
    return moved;
  }

 private:
  absl::StatusOr<std::unique_ptr<SharedTensors>> Make(
      const AttendArgs& args) const {
    const absl::StatusOr<int64_t> bytes = BytesNeeded(args);
    if (!bytes.ok()) return bytes.status();
    return SharedTensors::Create(region_socket_, owner_, *bytes);
  }

  // Memory of an earlier call, if some is large enough.
  absl::StatusOr<std::unique_ptr<SharedTensors>> Take(
      const AttendArgs& args) const {
    const absl::StatusOr<int64_t> bytes = BytesNeeded(args);
    if (!bytes.ok()) return bytes.status();
    {
      const std::lock_guard lock(mutex_);
      for (auto& candidate : free_) {
        if (candidate->bytes() < *bytes) continue;
        std::swap(candidate, free_.back());
        std::unique_ptr<SharedTensors> taken = std::move(free_.back());
        free_.pop_back();
        taken->Reset();
        return taken;
      }
      free_.clear();  // too small: they would only pile up
    }
    return SharedTensors::Create(region_socket_, owner_, *bytes);
  }

  const Client client_;
  const std::string region_socket_;
  const std::string owner_;
  mutable std::mutex mutex_;  // guards what follows
  mutable std::vector<std::unique_ptr<SharedTensors>> free_;
  std::vector<std::unique_ptr<SharedTensors>> prepared_;
};

}  // namespace

bool ServerSharesMemory(const std::string& target) {
  const absl::StatusOr<Client> client =
      Client::Create(target, {.retry = {.max_attempts = 1}});
  if (!client.ok()) return false;
  const absl::StatusOr<ServerInfo> info =
      client->GetServerInfo(std::chrono::milliseconds(500));
  return info.ok() && !info->region_socket.empty();
}

absl::StatusOr<std::unique_ptr<Door>> OpenShmDoor(
    const std::string& target, const ClientOptions& options) {
  ClientOptions with_owner = options;
  if (with_owner.region_owner.empty()) {
    with_owner.region_owner = RandomRegionOwner();
  }
  absl::StatusOr<Client> client = Client::Create(target, with_owner);
  if (!client.ok()) return client.status();
  const absl::StatusOr<ServerInfo> info =
      client->GetServerInfo(std::chrono::seconds(10));
  if (!info.ok()) {
    return absl::Status(info.status().code(),
                        absl::StrCat("door 'shm': ", info.status().message()));
  }
  if (info->region_socket.empty()) {
    return absl::UnimplementedError(
        "door 'shm': this server was started without --region_socket");
  }
  return std::make_unique<ShmDoor>(*std::move(client), info->region_socket,
                                   with_owner.region_owner);
}

}  // namespace attendant::client
