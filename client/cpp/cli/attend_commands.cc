#include "client/cpp/cli/attend_commands.h"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/cli/connection_flags.h"
#include "client/cpp/cli/door_flags.h"
#include "client/cpp/cli/oracle_check.h"
#include "client/cpp/cli/progress_bar.h"
#include "client/cpp/cli/report.h"
#include "client/cpp/cli/request_flags.h"
#include "client/cpp/door.h"
#include "client/cpp/formats/tensor_file.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kOutFlag[] = {
    {"out", "FILE", "write out (and lse): .npy, .npz, .safetensors"}};

constexpr char kFiles[] =
    R"(Files are .npy, .npz or .safetensors. Tensors named q, k, v, qkv, mask,
alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k,
starts_q and starts_k are taken as such; others are left alone.
)";

formats::ElementType ElementTypeOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat16:
      return formats::ElementType::kFloat16;
    case DataType::kBFloat16:
      return formats::ElementType::kBFloat16;
    default:
      return formats::ElementType::kFloat32;
  }
}

formats::FileTensor ToFile(const char* name, const Tensor& tensor) {
  return {name,
          ElementTypeOf(tensor.dtype),
          tensor.shape,
          {tensor.data, tensor.data + tensor.num_bytes}};
}

// .npy holds O alone; the others LSE too, if it was asked for.
absl::Status WriteAnswer(const std::string& path, const AttendResult& result) {
  std::vector<formats::FileTensor> tensors;
  tensors.push_back(ToFile("out", result.out));
  if (result.lse.data != nullptr && !absl::EndsWith(path, ".npy")) {
    tensors.push_back(ToFile("lse", result.lse));
  }
  return formats::WriteTensorFile(path, tensors);
}

struct Job {
  std::unique_ptr<Door> door;
  std::chrono::nanoseconds timeout;
  Request request;

  absl::StatusOr<AttendResult> Attend() const {
    return door->Attend(request.args, timeout);
  }
};
absl::StatusOr<Job> PrepareJob(const Flags& flags) {
  Job job;
  const std::string name = flags.String("door", "auto");
  const absl::Status known = CheckDoorName(name);
  if (!known.ok()) return known;
  const absl::StatusOr<ClientOptions> options = OptionsOf(flags);
  if (!options.ok()) return options.status();
  const absl::StatusOr<std::chrono::nanoseconds> timeout = TimeoutOf(flags);
  if (!timeout.ok()) return timeout.status();
  job.timeout = *timeout;
  absl::StatusOr<Request> request = ReadRequest(flags);
  if (!request.ok()) return request.status();
  job.request = *std::move(request);
  const std::string target = TargetOf(flags);
  absl::StatusOr<std::unique_ptr<Door>> door = OpenDoor(
      ResolveDoor(name, target, *options, TensorBytesOf(job.request.args)),
      target, *options);
  if (!door.ok()) return door.status();
  job.door = *std::move(door);
  return job;
}

int RunAttend(const Flags& flags) {
  const absl::StatusOr<Job> job = PrepareJob(flags);
  if (!job.ok()) return Fail(job.status(), kUsage);
  const absl::StatusOr<AttendResult> result = job->Attend();
  if (!result.ok()) return Fail(result.status(), ExitCodeOf(result.status()));
  if (flags.Has("out")) {
    const absl::Status written = WriteAnswer(flags.String("out"), *result);
    if (!written.ok()) return Fail(written, kUsage);
  }
  Print(flags.Switch("json") ? ResultJson(*result) : ResultText(*result));
  return kOk;
}

absl::StatusOr<CheckReport> CompareWithOracle(const Job& job,
                                              const AttendResult& result) {
  ProgressBar bar("oracle");
  return CheckAnswer(job.request.args, result,
                     [&](double done) { bar.Show(done); });
}

int RunCheck(const Flags& flags) {
  absl::StatusOr<Job> job = PrepareJob(flags);
  if (!job.ok()) return Fail(job.status(), kUsage);
  job->request.args.return_lse = true;
  const absl::StatusOr<AttendResult> result = job->Attend();
  if (!result.ok()) return Fail(result.status(), ExitCodeOf(result.status()));
  if (flags.Has("out")) {
    const absl::Status written = WriteAnswer(flags.String("out"), *result);
    if (!written.ok()) return Fail(written, kUsage);
  }
  const absl::StatusOr<CheckReport> report = CompareWithOracle(*job, *result);
  if (!report.ok()) return Fail(report.status(), kInternalError);
  Print(flags.Switch("json") ? CheckJson(*result, *report)
                             : CheckText(*result, *report));
  return report->passed() ? kOk : kCheckFailed;
}

int RunInfo(const Flags& flags) {
  const absl::StatusOr<Connection> connection = Connect(flags);
  if (!connection.ok()) return Fail(connection.status(), kUsage);
  const absl::StatusOr<ServerInfo> info =
      connection->client.GetServerInfo(connection->timeout);
  if (!info.ok()) return Fail(info.status(), ExitCodeOf(info.status()));
  Print(flags.Switch("json") ? InfoJson(*info) : InfoText(*info));
  return kOk;
}

}  // namespace

Command AttendCommand() {
  return {.name = "attend",
          .arguments = "[FILE...]",
          .summary = "Asks for an answer and writes it to --out.",
          .details = kFiles,
          .examples =
              "attendant attend --server=gpu7:50051 --causal --lse "
              "layer.safetensors \\\n    --out=answer.safetensors\n"
              "attendant attend --q=q.npy --k=kv.npz:keys --v=kv.npz:values "
              "--layout=bhsd\n",
          .flags = JoinFlags({RequestFlags(), kOutFlag, DoorFlags(),
                              ConnectionFlags(), OutputFlags()}),
          .run = RunAttend};
}

Command CheckCommand() {
  return {
      .name = "check",
      .arguments = "[FILE...]",
      .summary = "Compares the server's answer with a double-precision oracle.",
      .details = std::string("The LSE is always asked for. The oracle runs "
                             "here, on one core.\n") +
                 kFiles,
      .examples =
          "attendant check --random=2,512,512,16,4,128 --dtype=bf16 --causal\n"
          "attendant check layer.safetensors --json\n",
      .flags = JoinFlags({RequestFlags(), kOutFlag, DoorFlags(),
                          ConnectionFlags(), OutputFlags()}),
      .run = RunCheck};
}

Command InfoCommand() {
  return {
      .name = "info",
      .arguments = "",
      .summary = "Says what the server is, can, and allows.",
      .details = "",
      .examples = "attendant info\nattendant info --server=gpu7:50051 --json\n",
      .flags = JoinFlags({ConnectionFlags(), OutputFlags()}),
      .run = RunInfo};
}

}  // namespace attendant::client::cli
