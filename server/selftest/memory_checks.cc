#include "server/selftest/memory_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/request/errors.h"
#include "server/request/problem_validator.h"
#include "server/selftest/direct_call.h"

namespace attendant::server {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kHeadDim = 256;
constexpr int64_t kHeads = 64;
constexpr int64_t kEntryBytes = kHeads * kHeadDim * 2;  // of a tensor, bf16

struct Probe {
  std::shared_ptr<AttentionJob> job;
  uint64_t seed = 0;
  std::future<JobResult> result;
};

// Tensors of `tensor_bytes`: `tensor_bytes / kEntryBytes` sequences of one row
// and one key.
absl::StatusOr<std::shared_ptr<AttentionJob>> AdmitProbe(
    AttentionEngine& engine, const Bounds& bounds, int64_t tensor_bytes) {
  ParsedRequest parsed;
  const auto set = [&](v1::TensorSpec* spec, TensorField field) {
    spec->set_dtype(v1::DATA_TYPE_BF16);
    spec->set_layout(v1::LAYOUT_BSHD);
    for (const int64_t n :
         {tensor_bytes / kEntryBytes, int64_t{1}, kHeads, kHeadDim}) {
      spec->add_shape(n);
    }
    parsed.tensors[static_cast<int>(field)] = {0, tensor_bytes};
  };
  set(parsed.header.mutable_q(), TensorField::kQ);
  set(parsed.header.mutable_k(), TensorField::kK);
  set(parsed.header.mutable_v(), TensorField::kV);
  ASSIGN_OR_RETURN(std::unique_ptr<ValidatedRequest> request,
                   ValidateRequest(parsed, bounds, engine.device().properties));
  return engine.Admit(std::move(request), Clock::now() + kSelftestPatience);
}

// 16-bit patterns of the numbers 1..4096 / 16, none of which is -0 or NaN.
const std::array<uint16_t, 4096>& Patterns() {
  static const auto* patterns = [] {
    auto* made = new std::array<uint16_t, 4096>;
    for (size_t i = 0; i < made->size(); ++i) {
      (*made)[i] = static_cast<uint16_t>(0x3f80 + i % 0x400);
    }
    return made;
  }();
  return *patterns;
}

uint16_t PatternOf(uint64_t seed, int64_t i) {
  return Patterns()[(static_cast<uint64_t>(i) * 2654435761u + seed * 7919) >>
                        7 &
                    4095];
}

void FillProbe(const Probe& probe) {
  const ValidatedRequest& request = *probe.job->request;
  std::byte* input = probe.job->input.data();
  std::memset(input, 0, static_cast<size_t>(request.v_offset));
  auto* v = reinterpret_cast<uint16_t*>(input + request.v_offset);
  const int64_t elements = request.output_bytes / 2;
  for (int64_t i = 0; i < elements; ++i) v[i] = PatternOf(probe.seed, i);
}

absl::Status CheckProbe(const Probe& probe) {
  const ValidatedRequest& request = *probe.job->request;
  const auto* o = reinterpret_cast<const uint16_t*>(probe.job->output->data() +
                                                    request.output_offset);
  for (int64_t i = 0; i < request.output_bytes / 2; ++i) {
    if (o[i] == PatternOf(probe.seed, i)) continue;
    return absl::InternalError(absl::StrCat(
        "block ", probe.seed, ": byte ", 2 * i, " came back as ",
        absl::Hex(o[i]), ", was ", absl::Hex(PatternOf(probe.seed, i))));
  }
  return absl::OkStatus();
}

// On all cores.
template <typename Work>
void ForEach(std::vector<Probe>& probes, const Work& work) {
  const size_t count = std::min<size_t>(
      probes.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t t = 0; t < count; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = t; i < probes.size(); i += count) work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Bytes of one tensor, so that eight requests fill what is used of the pool.
int64_t TensorBytes(const AttentionEngine& engine, const Bounds& bounds) {
  const EngineSnapshot snapshot = engine.Snapshot();
  int64_t bytes = std::min(kMostBytes, snapshot.host_pool_capacity_bytes);
  if (engine.device().is_cuda) {
    bytes = std::min(bytes, snapshot.device_reserved_bytes);
  }
  bytes =
      std::min({bytes / 32, bounds.max_request_bytes / 4,
                bounds.max_response_bytes / 2, bounds.max_batch * kEntryBytes});
  return bytes / kEntryBytes * kEntryBytes;
}

void Start(AttentionEngine& engine, Probe* probe) {
  auto promise = std::make_shared<std::promise<JobResult>>();
  probe->result = promise->get_future();
  probe->job->done = [promise](JobResult result) {
    promise->set_value(std::move(result));
  };
  engine.Submit(probe->job);
}

std::string GigabytesPerSecond(const char* what, double bytes, double ns) {
  return ns <= 0
             ? std::string()
             : absl::StrCat(", ", what, " ", std::lround(bytes / ns), " GB/s");
}

}  // namespace

absl::StatusOr<std::string> CheckPools(AttentionEngine& engine,
                                       const Bounds& bounds) {
  const int64_t tensor_bytes = TensorBytes(engine, bounds);
  if (tensor_bytes == 0) {
    return absl::UnimplementedError("the bounds allow no request so large");
  }
  const int64_t most =
      std::min(kMostBytes, engine.Snapshot().host_pool_capacity_bytes);
  std::vector<Probe> probes;
  for (int64_t bytes = 0; bytes + 4 * tensor_bytes <= most;
       bytes += 4 * tensor_bytes) {
    auto job = AdmitProbe(engine, bounds, tensor_bytes);
    if (absl::IsResourceExhausted(job.status()) && !probes.empty()) break;
    RETURN_IF_ERROR(job.status());
    probes.push_back({*std::move(job), probes.size(), {}});
  }
  ForEach(probes, [&](size_t i) { FillProbe(probes[i]); });
  double up = 0, down = 0;
  for (Probe& probe : probes) Start(engine, &probe);
  for (Probe& probe : probes) {
    const JobResult result = probe.result.get();
    RETURN_IF_ERROR(result.status);
    up += static_cast<double>(result.busy_ns[static_cast<int>(Stage::kUpload)]);
    down +=
        static_cast<double>(result.busy_ns[static_cast<int>(Stage::kDownload)]);
  }
  std::vector<absl::Status> verdicts(probes.size());
  ForEach(probes, [&](size_t i) { verdicts[i] = CheckProbe(probes[i]); });
  for (const absl::Status& verdict : verdicts) RETURN_IF_ERROR(verdict);
  const auto count = static_cast<double>(probes.size());
  const auto tensor = static_cast<double>(tensor_bytes);
  return absl::StrCat(
      probes.size(), " blocks, ",
      (static_cast<int64_t>(probes.size()) * 4 * tensor_bytes) >> 20,
      " of the host pool's ", engine.Snapshot().host_pool_capacity_bytes >> 20,
      " MiB, bitwise", GigabytesPerSecond("up", 3 * tensor * count, up),
      GigabytesPerSecond("down", tensor * count, down));
}

absl::StatusOr<std::string> CheckBackpressure(AttentionEngine& engine,
                                              const Bounds& bounds) {
  // As large as one request may be, so that few fill the pool.
  const int64_t pool = engine.Snapshot().host_pool_capacity_bytes;
  int64_t bytes =
      std::min({pool / 8, bounds.max_request_bytes / 4,
                bounds.max_response_bytes / 2, bounds.max_batch * kEntryBytes});
  bytes = bytes / kEntryBytes * kEntryBytes;
  if (bytes == 0) {
    return absl::UnimplementedError("the bounds allow no request so large");
  }
  std::vector<std::shared_ptr<AttentionJob>> held;
  absl::Status refusal;
  while (static_cast<int64_t>(held.size()) <= pool / bytes) {
    auto job = AdmitProbe(engine, bounds, bytes);
    if (!job.ok()) {
      refusal = job.status();
      break;
    }
    held.push_back(*std::move(job));
  }
  if (!absl::IsResourceExhausted(refusal) || RetryPushbackMs(refusal) < 0) {
    return absl::InternalError(absl::StrCat(
        "after ", held.size(), " requests that fill the pool: ",
        refusal.ok() ? "nothing was refused" : refusal.ToString()));
  }
  const size_t count = held.size();
  held.clear();
  const EngineSnapshot after = engine.Snapshot();
  if (after.host_pool_used_bytes != 0 || after.queued_requests != 0) {
    return absl::InternalError(absl::StrCat(
        after.host_pool_used_bytes, " bytes of the host pool and ",
        after.queued_requests, " places in the queue did not come back"));
  }
  return absl::StrCat("refused after ", count,
                      " held requests, all given back");
}

}  // namespace attendant::server
