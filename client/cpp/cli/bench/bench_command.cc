#include "client/cpp/cli/bench/bench_command.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/cli/bench/bench_callers.h"
#include "client/cpp/cli/bench/bench_case.h"
#include "client/cpp/cli/bench/bench_report.h"
#include "client/cpp/cli/bench/load_runner.h"
#include "client/cpp/cli/connection_flags.h"
#include "client/cpp/cli/door_flags.h"
#include "client/cpp/cli/plot/bench_charts.h"
#include "client/cpp/cli/progress_bar.h"
#include "client/cpp/cli/text_file.h"
#include "client/cpp/client_error.h"
#include "client/cpp/door.h"

namespace attendant::client::cli {
namespace {

using nlohmann::ordered_json;
using std::chrono::nanoseconds;

// Where and how the calls go.
struct Target {
  std::string address;
  ClientOptions options;
  nanoseconds timeout;
};

absl::StatusOr<Target> ReadTarget(const Flags& flags) {
  absl::StatusOr<ClientOptions> options = OptionsOf(flags);
  if (!options.ok()) return options.status();
  const absl::StatusOr<nanoseconds> timeout = TimeoutOf(flags);
  if (!timeout.ok()) return timeout.status();
  // A retry would hide what a load generator is there to show.
  if (!flags.Has("max-attempts")) options->retry.max_attempts = 1;
  return Target{TargetOf(flags), *std::move(options), *timeout};
}

// The name of the door of a case; "auto" is resolved.
std::string DoorFor(const BenchCase& one, const Target& target) {
  int64_t bytes = 0;
  for (const BenchShape& shape : one.shapes) {
    bytes = std::max(bytes, InputBytes(shape, one.options.dtype));
  }
  return ResolveDoor(one.door, target.address, target.options, bytes);
}

absl::StatusOr<Callers> OpenCallers(const BenchCase& one,
                                    const Target& target) {
  ClientOptions options = target.options;
  options.connections = one.connections;
  absl::StatusOr<std::unique_ptr<Door>> door =
      OpenDoor(one.door, target.address, options);
  if (!door.ok()) return door.status();
  return MakeCallers(one, *std::move(door));
}

// DATA_LOSS if the door's answer is not bitwise the unary door's.
absl::Status Verify(const BenchCase& one, size_t shape, const Target& target,
                    const Callers& callers) {
  const absl::StatusOr<std::unique_ptr<Door>> unary =
      OpenDoor("unary", target.address, target.options);
  if (!unary.ok()) return unary.status();
  const auto expected = (*unary)->Attend(
      WithoutAnswer(callers.inputs[shape].args), target.timeout);
  if (!expected.ok()) return expected.status();
  const auto answer =
      callers.door->Attend(callers.args[0][shape], target.timeout);
  if (!answer.ok()) return answer.status();
  for (const auto& [a, b] : {std::pair(&expected->out, &answer->out),
                             std::pair(&expected->lse, &answer->lse)}) {
    std::vector<std::byte> bytes(static_cast<size_t>(b->num_bytes));
    if (b->num_bytes > 0) {
      const absl::Status read = callers.door->CopyToHost(*b, bytes.data());
      if (!read.ok()) return read;
    }
    if (a->num_bytes == b->num_bytes &&
        (a->num_bytes == 0 ||
         std::memcmp(a->data, bytes.data(), bytes.size()) == 0)) {
      continue;
    }
    return absl::DataLossError(
        absl::StrCat("the answer by door ", one.door, " for ",
                     ShapeText(one.shapes[shape]), " is not the unary door's"));
  }
  return absl::OkStatus();
}

// Untimed calls, at least one a connection, until all are answered: the load is
// what is measured, not a connection that failed to come about (gRPC tries it
// again after 100 ms). A server that stays away is the measurement's to tell.
template <typename CallOne>
void WarmUp(const BenchCase& one, const CallOne& call) {
  if (one.warmup_calls == 0) return;
  constexpr int kRounds = 5;
  constexpr std::chrono::milliseconds kReconnect{250};
  LoadPlan plan = one.plan;
  plan.rate = 0;
  plan.duration = nanoseconds(0);
  plan.requests =
      std::max(one.warmup_calls * one.plan.callers, int64_t{one.connections});
  for (int round = 0; round < kRounds; ++round) {
    const LoadResult result = RunLoad(plan, SteadyLoadClock(), call);
    if (result.errors.count(absl::StatusCode::kUnavailable) == 0) return;
    std::this_thread::sleep_for(kReconnect);
  }
}

absl::StatusOr<LoadResult> RunCase(const BenchCase& one, const Target& target,
                                   bool verify) {
  ProgressBar bar(CaseText(one));
  absl::StatusOr<Callers> callers = OpenCallers(one, target);
  if (!callers.ok()) return callers.status();
  const auto call = [&](int caller) {
    return CallOnce(one.call, caller, target.timeout, &*callers);
  };
  for (size_t shape = 0; verify && shape < one.shapes.size(); ++shape) {
    const absl::Status same = Verify(one, shape, target, *callers);
    if (!same.ok()) return same;
  }
  WarmUp(one, call);
  return RunLoad(one.plan, SteadyLoadClock(), call,
                 [&](double done) { bar.Show(done); });
}

std::string CommandLineOf(const Flags& flags) {
  std::string line = "attendant bench";
  for (const auto& [name, value] : flags.values()) {
    absl::StrAppend(&line, " --", name, "=", value);
  }
  return line;
}

int RunBench(const Flags& flags) {
  const absl::StatusOr<std::vector<BenchCase>> cases = ReadBenchCases(flags);
  if (!cases.ok()) return Fail(cases.status(), kUsage);
  const absl::StatusOr<Target> target = ReadTarget(flags);
  if (!target.ok()) return Fail(target.status(), kUsage);
  const absl::StatusOr<Client> client =
      Client::Create(target->address, target->options);
  if (!client.ok()) return Fail(client.status(), kUsage);
  const absl::StatusOr<ServerInfo> info =
      client->GetServerInfo(target->timeout);
  if (!info.ok()) return Fail(info.status(), ExitCodeOf(info.status()));

  std::vector<BenchCase> chosen = *cases;
  for (BenchCase& one : chosen) one.door = DoorFor(one, *target);

  const bool quiet = flags.String("json") == "-";
  ordered_json rows = ordered_json::array();
  bool any_failed = false;
  if (!quiet) Print(TableHead());
  for (const BenchCase& one : chosen) {
    const absl::StatusOr<LoadResult> result =
        RunCase(one, *target, flags.Switch("verify"));
    if (!result.ok()) return Fail(result.status(), ExitCodeOf(result.status()));
    if (result->answered == 0 && result->failed() > 0) {
      return Fail(result->first_error, ExitCodeOf(result->first_error));
    }
    if (result->failed() > 0) {
      any_failed = true;
      Fail(result->first_error, kCheckFailed);
    }
    rows.push_back(RowJson(one, *result));
    if (!quiet) Print(TableRow(rows.back()));
  }
  const ordered_json report =
      ReportJson(*info, CommandLineOf(flags), std::move(rows));
  if (flags.Has("json")) {
    const absl::Status written =
        WriteTextFile("--json", flags.String("json"), report.dump(1) + "\n");
    if (!written.ok()) return Fail(written, kUsage);
  }
  if (flags.Has("html")) {
    const absl::Status written =
        WriteTextFile("--html", flags.String("html"), BenchPage(report));
    if (!written.ok()) return Fail(written, kUsage);
  }
  return any_failed ? kCheckFailed : kOk;
}

}  // namespace

Command BenchCommand() {
  return {.name = "bench",
          .arguments = "",
          .summary = "Loads a server and measures latency, rate and GB/s.",
          .details =
              "Every combination of --door, --connections, --shapes, "
              "--concurrency and --rate\nis one row. GB/s: bytes in plus out "
              "over wall time. Percentiles: answered calls\nand missed "
              "deadlines; server ms: the p50 of the server's own total. "
              "--max-attempts "
              "is 1 here\nunless given.\n",
          .examples =
              "attendant bench --shapes=s128h16d128,s8192h16d128 "
              "--concurrency=1,4,16\n"
              "attendant bench --rate=100,500,1000 --seconds=10 "
              "--html=report.html\n"
              "attendant bench --door=unary --connections=8 --concurrency=16 "
              "--json=rows.json\n",
          .flags = JoinFlags({BenchFlags(), ConnectionFlags()}),
          .run = RunBench};
}

}  // namespace attendant::client::cli
