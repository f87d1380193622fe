#include "client/cpp/cli/bench/bench_callers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace attendant::client::cli {
namespace {

using ::testing::Each;
using ::testing::Eq;
using ::testing::Ne;

struct Seen {
  int prepared = 0;
  std::byte memory[128];
  std::byte* place = memory;  // where prepared calls' answers go
  // Of each call: where its answer was to go, and where its arguments stood.
  std::vector<std::byte*> outs, lses;
  std::vector<size_t> out_bytes;
  std::vector<const AttendArgs*> args;
};

// Answers where it is told to, else in memory of the answer's own.
class TellingDoor : public Door {
 public:
  explicit TellingDoor(Seen* seen) : seen_(*seen) {}

  const std::string& name() const override { return name_; }
  DoorCapabilities capabilities() const override { return {}; }

  absl::StatusOr<AttendArgs> Prepare(const AttendArgs& args) override {
    ++seen_.prepared;
    AttendArgs placed = args;
    placed.out = {seen_.place, args.out.size()};
    return placed;
  }

  absl::StatusOr<AttendResult> Attend(const AttendArgs& args,
                                      std::chrono::nanoseconds,
                                      std::stop_token) const override {
    seen_.outs.push_back(args.out.data());
    seen_.lses.push_back(args.lse.data());
    seen_.out_bytes.push_back(args.out.size());
    seen_.args.push_back(&args);
    AttendResult result;
    absl::StatusOr<Tensor> out = AllocateTensor(args.q.dtype, args.q.shape);
    if (!out.ok()) return out.status();
    result.out = *std::move(out);
    if (args.out.data() != nullptr) {
      result.out.storage.reset();
      result.out.data = args.out.data();
    }
    return result;
  }

 private:
  const std::string name_ = "telling";
  Seen& seen_;
};

// Three calls of each of two callers, of one shape; `seen` is of the door.
Callers Call(CallKind kind, Seen* seen) {
  BenchCase one;
  one.call = kind;
  one.shapes = {*ParseShape("s4h2d8")};
  one.options.return_lse = true;
  one.plan.callers = 2;
  absl::StatusOr<Callers> callers =
      MakeCallers(one, std::make_unique<TellingDoor>(seen));
  EXPECT_TRUE(callers.ok()) << callers.status();
  for (const int caller : {0, 0, 0, 1, 1, 1}) {
    const auto result =
        CallOnce(kind, caller, std::chrono::seconds(1), &*callers);
    EXPECT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->output_bytes, 4 * 2 * 8 * 2);
  }
  EXPECT_EQ(seen->outs.size(), 6);
  return *std::move(callers);
}

TEST(BenchCallers, PreparedCallsAnswerWhereTheDoorSaid) {
  Seen seen;
  const Callers callers = Call(CallKind::kPrepared, &seen);
  EXPECT_EQ(seen.prepared, 2);
  EXPECT_THAT(seen.outs, Each(Eq(seen.place)));
  EXPECT_EQ(seen.args[0], &callers.args[0][0]);  // stated once
  EXPECT_EQ(seen.args[5], &callers.args[1][0]);
}

TEST(BenchCallers, CallsWithAPlaceAnswerIntoOneMemoryOfTheirCallers) {
  Seen seen;
  const Callers callers = Call(CallKind::kOut, &seen);
  EXPECT_EQ(seen.prepared, 0);
  EXPECT_THAT(seen.outs, Each(Ne(nullptr)));
  EXPECT_THAT(seen.lses, Each(Ne(nullptr)));
  EXPECT_THAT(seen.out_bytes, Each(Eq(4 * 2 * 8 * 2)));
  EXPECT_EQ(std::set(seen.outs.begin(), seen.outs.begin() + 3).size(), 1);
  EXPECT_EQ(std::set(seen.outs.begin() + 3, seen.outs.end()).size(), 1);
  EXPECT_NE(seen.outs[0], seen.outs[3]);
  EXPECT_THAT(seen.args, Each(Ne(&callers.args[0][0])));  // stated anew
  EXPECT_EQ(callers.last[0].out.data, nullptr);
}

TEST(BenchCallers, CallsWithoutAPlaceKeepTheAnswerUntilTheNextIsThere) {
  Seen seen;
  const Callers callers = Call(CallKind::kNew, &seen);
  EXPECT_EQ(seen.prepared, 0);
  EXPECT_THAT(seen.outs, Each(Eq(nullptr)));
  EXPECT_THAT(seen.lses, Each(Eq(nullptr)));
  EXPECT_THAT(seen.out_bytes, Each(Eq(0)));
  EXPECT_TRUE(callers.outputs.empty());
  EXPECT_THAT(seen.args, Each(Ne(&callers.args[0][0])));
  for (const Answer& last : callers.last) {
    ASSERT_NE(last.out.storage, nullptr);
    EXPECT_EQ(last.out.data, last.out.storage.get());
  }
}

}  // namespace
}  // namespace attendant::client::cli
