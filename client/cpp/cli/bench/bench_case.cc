#include "client/cpp/cli/bench/bench_case.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cpp/cli/door_flags.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

constexpr FlagSpec kFlags[] = {
    {"door", "auto|unary|stream|striped|shm|ipc",
     "how tensors travel; several by commas [auto]"},
    {"shapes", "SHAPE,...",
     "letters with a number each: b batch [1], s both\n"
     "lengths or q and k, h heads, g KV heads [h],\n"
     "d head_dim, v head_dim_v [d] [s128h16d128]"},
    {"concurrency", "N,N,...",
     "callers, one call at a time each [1; open loop 64]"},
    {"rate", "X,X,...",
     "open loop, calls a second; a call's latency counts\n"
     "from when it was meant to start [closed loop]"},
    {"arrivals", "constant|poisson", "of the open loop [constant]"},
    {"connections", "N,N,...", "TCP connections [1]"},
    {"requests", "N", "calls of a case [no end but --seconds]"},
    {"seconds", "X", "time of a case [5; with --requests: no end]"},
    {"warmup", "N", "calls of each caller before, not counted [2]"},
    {"mix", "", "every call takes one of the shapes at random"},
    {"call", "prepared|out|new",
     "prepared: stated once, tensors and answer where the\n"
     "door moves them without a copy; out: each call\n"
     "stated anew, answer into the caller's memory; new:\n"
     "so, each answer in memory of its own, kept until\n"
     "the next [prepared]"},
    {"layout", "bshd|bhsd|thd", "order of dimensions [bshd]"},
    {"dtype", "fp32|fp16|bf16", "of the tensors [fp16]"},
    {"causal", "", "a query sees no later key"},
    {"lse", "", "ask for the log-sum-exp too"},
    {"verify", "", "each shape's answer is bitwise the unary door's"},
    {"json", "FILE", "write every row and histogram; - = stdout"},
    {"html", "FILE", "write a page with plots, without outside assets"},
    {"help", "", "show this"},
};

// Reads flags until the first bad one.
class Reader {
 public:
  explicit Reader(const Flags& flags) : flags_(flags) {}
  const absl::Status& status() const { return status_; }

  std::vector<std::string> Words(const std::string& name,
                                 const std::string& otherwise) const {
    return absl::StrSplit(flags_.String(name, otherwise), ',');
  }
  template <typename T>
  T Choice(const std::string& name,
           const std::vector<std::pair<std::string, T>>& choices) {
    const std::string text = flags_.String(name, choices[0].first);
    std::string bound;
    for (const auto& [word, value] : choices) {
      if (word == text) return value;
      absl::StrAppend(&bound, bound.empty() ? "" : ", ", word);
    }
    Bad(name, text, bound);
    return choices[0].second;
  }
  std::vector<int64_t> Counts(const std::string& name, int64_t otherwise,
                              int64_t most) {
    auto values = flags_.Ints(name);
    if (!values.ok()) status_.Update(values.status());
    if (!values.ok() || values->empty()) return {otherwise};
    for (const int64_t value : *values) {
      if (value < 1 || value > most) {
        Bad(name, absl::StrCat(value), absl::StrCat("1..", most));
      }
    }
    return *std::move(values);
  }
  std::vector<float> Numbers(const std::string& name, float most) {
    auto values = flags_.Floats(name);
    if (!values.ok()) {
      status_.Update(values.status());
      return {};
    }
    for (const float value : *values) {
      if (!(value > 0) || value > most) {
        Bad(name, absl::StrCat(value),
            absl::StrFormat("above 0, up to %g", most));
      }
    }
    return *std::move(values);
  }
  std::optional<int64_t> Count(const std::string& name, int64_t least) {
    const auto value = flags_.Int(name);
    if (!value.ok()) {
      status_.Update(value.status());
      return std::nullopt;
    }
    if (value->has_value() && **value < least) {
      Bad(name, absl::StrCat(**value), absl::StrCat(">= ", least));
    }
    return *value;
  }

 private:
  void Bad(const std::string& name, const std::string& value,
           const std::string& bound) {
    status_.Update(InvalidField("--" + name, value, bound));
  }
  const Flags& flags_;
  absl::Status status_;
};

// What all cases share.
BenchCase ReadCommon(const Flags& flags, Reader* reader) {
  BenchCase common;
  common.options.layout =
      reader->Choice<Layout>("layout", {{"bshd", Layout::kBSHD},
                                        {"bhsd", Layout::kBHSD},
                                        {"thd", Layout::kTHD}});
  common.options.dtype =
      reader->Choice<DataType>("dtype", {{"fp16", DataType::kFloat16},
                                         {"bf16", DataType::kBFloat16},
                                         {"fp32", DataType::kFloat32}});
  common.call =
      reader->Choice<CallKind>("call", {{"prepared", CallKind::kPrepared},
                                        {"out", CallKind::kOut},
                                        {"new", CallKind::kNew}});
  common.options.causal = flags.Switch("causal");
  common.options.return_lse = flags.Switch("lse");
  common.warmup_calls = reader->Count("warmup", 0).value_or(2);
  const std::optional<int64_t> requests = reader->Count("requests", 1);
  const std::vector<float> seconds = reader->Numbers("seconds", 86400);
  common.plan.requests = requests.value_or(0);
  double time = requests.has_value() ? 0 : 5;
  if (!seconds.empty()) time = seconds[0];
  common.plan.duration =
      std::chrono::nanoseconds(static_cast<int64_t>(time * 1e9));
  common.plan.poisson = reader->Choice<bool>(
      "arrivals", {{"constant", false}, {"poisson", true}});
  return common;
}

std::vector<LoadPlan> ReadPlans(const LoadPlan& common, Reader* reader) {
  constexpr int kMostCallers = 4096;
  const std::vector<float> rates = reader->Numbers("rate", 1e6);
  const std::vector<int64_t> callers =
      reader->Counts("concurrency", rates.empty() ? 1 : 64, kMostCallers);
  std::vector<LoadPlan> plans;
  for (const int64_t count : callers) {
    LoadPlan plan = common;
    plan.callers = static_cast<int>(count);
    if (rates.empty()) plans.push_back(plan);
    for (const float rate : rates) {
      plan.rate = rate;
      plans.push_back(plan);
    }
  }
  return plans;
}

}  // namespace

std::span<const FlagSpec> BenchFlags() { return kFlags; }

const char* Name(CallKind call) {
  switch (call) {
    case CallKind::kPrepared:
      return "prepared";
    case CallKind::kOut:
      return "out";
    case CallKind::kNew:
      return "new";
  }
  return "?";
}

std::string ShapesText(const BenchCase& one) {
  if (one.shapes.size() == 1) return ShapeText(one.shapes[0]);
  return absl::StrFormat("mix of %d", one.shapes.size());
}

std::string CaseText(const BenchCase& one) {
  std::string text = absl::StrFormat(
      "%s, %d connection%s, %s, %d caller%s", one.door, one.connections,
      one.connections == 1 ? "" : "s", ShapesText(one), one.plan.callers,
      one.plan.callers == 1 ? "" : "s");
  if (one.plan.rate > 0) absl::StrAppendFormat(&text, ", %g/s", one.plan.rate);
  return text;
}

absl::StatusOr<std::vector<BenchCase>> ReadBenchCases(const Flags& flags) {
  Reader reader(flags);
  const BenchCase common = ReadCommon(flags, &reader);
  const std::vector<LoadPlan> plans = ReadPlans(common.plan, &reader);
  const std::vector<int64_t> connections =
      reader.Counts("connections", 1, 1024);
  std::vector<std::vector<BenchShape>> shapes;
  for (const std::string& text : reader.Words("shapes", "s128h16d128")) {
    const absl::StatusOr<BenchShape> shape = ParseShape(text);
    if (!shape.ok()) return shape.status();
    if (shapes.empty() || !flags.Switch("mix")) shapes.emplace_back();
    shapes.back().push_back(*shape);
  }
  if (!reader.status().ok()) return reader.status();
  std::vector<BenchCase> cases;
  for (const std::string& door : reader.Words("door", "auto")) {
    const absl::Status known = CheckDoorName(door);
    if (!known.ok()) return known;
    for (const int64_t count : connections) {
      for (const std::vector<BenchShape>& drawn : shapes) {
        for (const LoadPlan& plan : plans) {
          BenchCase& one = cases.emplace_back(common);
          one.door = door;
          one.connections = static_cast<int>(count);
          one.shapes = drawn;
          one.plan = plan;
        }
      }
    }
  }
  return cases;
}

}  // namespace attendant::client::cli
