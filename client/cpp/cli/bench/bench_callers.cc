#include "client/cpp/cli/bench/bench_callers.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "client/cpp/cli/door_flags.h"

namespace attendant::client::cli {
namespace {

// `args` with places for its answer in `memory`, [0] for O and [1] for LSE.
AttendArgs WithAnswer(AttendArgs args, const BenchRequest& memory) {
  args.out = {memory.memory[0].get(), args.out.size()};
  args.lse = {memory.memory[1].get(), args.lse.size()};
  return args;
}

BenchRequest AllocateOutputs(const std::vector<BenchRequest>& inputs) {
  size_t out = 1, lse = 1;
  for (const BenchRequest& request : inputs) {
    out = std::max(out, request.args.out.size());
    lse = std::max(lse, request.args.lse.size());
  }
  BenchRequest outputs;
  outputs.memory.push_back(std::make_unique<std::byte[]>(out));
  outputs.memory.push_back(std::make_unique<std::byte[]>(lse));
  return outputs;
}

// The calls of one more caller, one a shape.
absl::Status AddCaller(CallKind call, Callers* callers) {
  callers->random.emplace_back(callers->args.size());
  callers->last.emplace_back();
  std::vector<AttendArgs>& own = callers->args.emplace_back();
  if (call != CallKind::kNew) {
    callers->outputs.push_back(AllocateOutputs(callers->inputs));
  }
  for (const BenchRequest& request : callers->inputs) {
    AttendArgs args = request.args;
    args = call == CallKind::kNew
               ? WithoutAnswer(std::move(args))
               : WithAnswer(std::move(args), callers->outputs.back());
    if (call == CallKind::kPrepared) {
      absl::StatusOr<AttendArgs> prepared = callers->door->Prepare(args);
      if (!prepared.ok()) return prepared.status();
      args = *std::move(prepared);
    }
    own.push_back(std::move(args));
  }
  return absl::OkStatus();
}

}  // namespace

AttendArgs WithoutAnswer(AttendArgs args) {
  args.out = args.lse = {};
  return args;
}

absl::StatusOr<Callers> MakeCallers(const BenchCase& one,
                                    std::unique_ptr<Door> door) {
  Callers callers;
  callers.door = std::move(door);
  for (const BenchShape& shape : one.shapes) {
    absl::StatusOr<BenchRequest> request = MakeBenchRequest(shape, one.options);
    if (!request.ok()) return request.status();
    callers.inputs.push_back(*std::move(request));
  }
  for (int c = 0; c < one.plan.callers; ++c) {
    const absl::Status added = AddCaller(one.call, &callers);
    if (!added.ok()) return added;
  }
  return callers;
}

absl::StatusOr<AttendResult> CallOnce(CallKind call, int caller,
                                      std::chrono::nanoseconds timeout,
                                      Callers* callers) {
  const std::vector<AttendArgs>& shapes = callers->args[caller];
  const AttendArgs& args = shapes[callers->random[caller]() % shapes.size()];
  // Who does not prepare states the arguments for every call: that is a copy.
  absl::StatusOr<AttendResult> result =
      call == CallKind::kPrepared
          ? callers->door->Attend(args, timeout)
          : callers->door->Attend(AttendArgs(args), timeout);
  if (!result.ok()) return result;
  result->input_bytes = TensorBytesOf(args);
  result->output_bytes = result->out.num_bytes + result->lse.num_bytes;
  // As `answer = Attend(...)`: the answer before goes when the next is there.
  if (call == CallKind::kNew) {
    callers->last[caller] = {std::move(result->out), std::move(result->lse)};
  }
  return result;
}

}  // namespace attendant::client::cli
