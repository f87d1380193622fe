#include "client/cpp/cli/commands.h"

#include <cstdio>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/cli/connection_flags.h"
#include "client/cpp/cli/flags.h"
#include "client/cpp/cli/oracle_check.h"
#include "client/cpp/cli/report.h"
#include "client/cpp/cli/request_flags.h"
#include "client/cpp/formats/tensor_file.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kOutFlag[] = {
    {"out", "FILE", "write out (and lse): .npy, .npz, .safetensors"}};

constexpr char kHelp[] =
    R"(attendant: exact attention from an Attendant server

  attendant attend [FLAG...] [FILE...]   ask for an answer, write it to --out
  attendant check  [FLAG...] [FILE...]   compare the answer with an oracle
  attendant info   [FLAG...]             what the server is, can, and allows
  attendant COMMAND --help               the flags of a command

Files are .npy, .npz or .safetensors. Tensors named q, k, v, qkv, mask,
alibi_slopes, sinks, cu_seqlens_q, cu_seqlens_k, seqlens_q, seqlens_k,
starts_q and starts_k are taken as such; others are left alone.

Examples
  attendant attend --server=gpu7:50051 --causal --lse layer.safetensors \
      --out=answer.safetensors
  attendant attend --q=q.npy --k=kv.npz:keys --v=kv.npz:values --layout=bhsd
  attendant check --random=2,512,512,16,4,128 --dtype=bf16 --causal
  attendant info --json

Exit codes
  0  done; check: the answer is within the tolerance
  1  check: the answer is outside the tolerance
  2  flags or files are wrong; nothing was sent
  3  the server refused the request: it would never succeed
  4  not reachable, overloaded, too late or cancelled: it may succeed later
  5  the server or this command is at fault
)";

int Fail(const absl::Status& status, ExitCode code) {
  std::fputs(ErrorText(status).c_str(), stderr);
  return code;
}

void Print(const std::string& text) { std::fputs(text.c_str(), stdout); }

std::vector<FlagSpec> Join(std::span<const FlagSpec> a,
                           std::span<const FlagSpec> b,
                           std::span<const FlagSpec> c = {}) {
  std::vector<FlagSpec> joined(a.begin(), a.end());
  joined.insert(joined.end(), b.begin(), b.end());
  joined.insert(joined.end(), c.begin(), c.end());
  return joined;
}

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

// Flags, connection and request of attend and check.
struct Job {
  Flags flags;
  Connection connection;
  Request request;
};
absl::StatusOr<Job> PrepareJob(const Flags& flags) {
  absl::StatusOr<Connection> connection = Connect(flags);
  if (!connection.ok()) return connection.status();
  absl::StatusOr<Request> request = ReadRequest(flags);
  if (!request.ok()) return request.status();
  return Job{flags, *std::move(connection), *std::move(request)};
}

}  // namespace

ExitCode ExitCodeOf(const absl::Status& call_status) {
  switch (call_status.code()) {
    case absl::StatusCode::kOk:
      return kOk;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kUnauthenticated:
      return kRefused;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return kUnavailable;
    default:
      return kInternalError;
  }
}

int AttendCommand(const std::vector<std::string>& arguments) {
  const std::vector<FlagSpec> specs =
      Join(RequestFlags(), kOutFlag, ConnectionFlags());
  const absl::StatusOr<Flags> flags = Flags::Parse(arguments, specs);
  if (!flags.ok()) return Fail(flags.status(), kUsage);
  if (flags->Switch("help")) {
    Print("attendant attend [FLAG...] [FILE...]\n\n" + HelpLines(specs));
    return kOk;
  }
  const absl::StatusOr<Job> job = PrepareJob(*flags);
  if (!job.ok()) return Fail(job.status(), kUsage);
  const absl::StatusOr<AttendResult> result =
      job->connection.client.Attend(job->request.args, job->connection.timeout);
  if (!result.ok()) return Fail(result.status(), ExitCodeOf(result.status()));
  if (flags->Has("out")) {
    const absl::Status written = WriteAnswer(flags->String("out"), *result);
    if (!written.ok()) return Fail(written, kUsage);
  }
  Print(flags->Switch("json") ? ResultJson(*result) : ResultText(*result));
  return kOk;
}

int CheckCommand(const std::vector<std::string>& arguments) {
  const std::vector<FlagSpec> specs =
      Join(RequestFlags(), kOutFlag, ConnectionFlags());
  const absl::StatusOr<Flags> flags = Flags::Parse(arguments, specs);
  if (!flags.ok()) return Fail(flags.status(), kUsage);
  if (flags->Switch("help")) {
    Print(
        "attendant check [FLAG...] [FILE...]\n\nThe LSE is always asked for. "
        "The oracle runs here, on one core.\n\n" +
        HelpLines(specs));
    return kOk;
  }
  absl::StatusOr<Job> job = PrepareJob(*flags);
  if (!job.ok()) return Fail(job.status(), kUsage);
  job->request.args.return_lse = true;
  const absl::StatusOr<AttendResult> result =
      job->connection.client.Attend(job->request.args, job->connection.timeout);
  if (!result.ok()) return Fail(result.status(), ExitCodeOf(result.status()));
  if (flags->Has("out")) {
    const absl::Status written = WriteAnswer(flags->String("out"), *result);
    if (!written.ok()) return Fail(written, kUsage);
  }
  const absl::StatusOr<CheckReport> report =
      CheckAnswer(job->request.args, *result);
  if (!report.ok()) return Fail(report.status(), kInternalError);
  Print(flags->Switch("json") ? CheckJson(*result, *report)
                              : CheckText(*result, *report));
  return report->passed() ? kOk : kCheckFailed;
}

int InfoCommand(const std::vector<std::string>& arguments) {
  const absl::StatusOr<Flags> flags =
      Flags::Parse(arguments, ConnectionFlags());
  if (!flags.ok()) return Fail(flags.status(), kUsage);
  if (flags->Switch("help")) {
    Print("attendant info [FLAG...]\n\n" + HelpLines(ConnectionFlags()));
    return kOk;
  }
  const absl::StatusOr<Connection> connection = Connect(*flags);
  if (!connection.ok()) return Fail(connection.status(), kUsage);
  const absl::StatusOr<ServerInfo> info =
      connection->client.GetServerInfo(connection->timeout);
  if (!info.ok()) return Fail(info.status(), ExitCodeOf(info.status()));
  Print(flags->Switch("json") ? InfoJson(*info) : InfoText(*info));
  return kOk;
}

int RunCommand(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(
      arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "attend") return AttendCommand(rest);
  if (command == "check") return CheckCommand(rest);
  if (command == "info") return InfoCommand(rest);
  if (command == "help" || command == "--help" || command == "-h") {
    Print(kHelp);
    return kOk;
  }
  std::fputs(kHelp, stderr);
  return kUsage;
}

}  // namespace attendant::client::cli
