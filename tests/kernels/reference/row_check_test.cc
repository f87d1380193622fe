#include "kernels/reference/row_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tuple>

#include "kernels/reference/oracle.h"
#include "tests/testing/host_problem.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::reference::AnswerRow;
using kernels::reference::CheckRows;
using kernels::reference::ChooseRows;
using kernels::reference::RowVerdict;
using ::testing::HasSubstr;

constexpr int64_t kAll = 1000;

ProblemOptions Options(DataType dtype) {
  ProblemOptions options;
  options.dtype = dtype;
  options.batch = 2;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.head_dim = 24;
  options.seqlen_q = 37;
  options.seqlen_kv = 45;
  options.causal = options.bottom_right = true;
  return options;
}

RowVerdict CheckAll(const HostProblem& problem) {
  return CheckRows(problem.problem(),
                   ChooseRows(problem.problem(), kAll, kAll, 1));
}

// The answer of the plain implementation.
HostProblem Answered(const ProblemOptions& options) {
  HostProblem problem(options);
  kernels::reference::Plain(problem.problem());
  return problem;
}

void SetOut(HostProblem* problem, int64_t element, float value) {
  kernels::StoreFromFloat(problem->problem().out.data,
                          problem->problem().output_dtype, element, value);
}

TEST(RowCheck, PlainAnswersPassInEveryTypeAndLayout) {
  for (const DataType dtype :
       {DataType::kFloat32, DataType::kFloat16, DataType::kBFloat16}) {
    ProblemOptions options = Options(dtype);
    EXPECT_LE(CheckAll(Answered(options)).worst, 1);
    options.layout = Layout::kThd;
    options.lens_q = {5, 9};
    options.lens_kv = {12, 3};  // rows that see nothing
    EXPECT_LE(CheckAll(Answered(options)).worst, 1);
    options.mask = kernels::MaskKind::kBoolBits;
    options.sinks = options.alibi = true;
    EXPECT_LE(CheckAll(Answered(options)).worst, 1);
  }
}

TEST(RowCheck, OneWrongElementIsFoundAndNamed) {
  HostProblem problem = Answered(Options(DataType::kBFloat16));
  const auto& p = problem.problem();
  SetOut(&problem,
         p.out.batch_stride + 11 * p.out.row_stride + 3 * p.out.head_stride + 7,
         100);
  const RowVerdict verdict = CheckAll(problem);
  EXPECT_GT(verdict.worst, 10);
  EXPECT_THAT(verdict.Describe(), HasSubstr("O of batch 1 head 3 row 11 is"));
}

TEST(RowCheck, ErrorsJustBeyondTheToleranceFail) {
  HostProblem problem = Answered(Options(DataType::kFloat32));
  SetOut(&problem, 0, problem.Out(0, 0, 0, 0) + 1e-3f);
  EXPECT_GT(CheckAll(problem).worst, 1);
}

TEST(RowCheck, LseIsCheckedToo) {
  HostProblem problem = Answered(Options(DataType::kFloat16));
  problem.problem().lse[3] += 0.01f;
  const RowVerdict verdict = CheckAll(problem);
  EXPECT_GT(verdict.worst, 1);
  EXPECT_THAT(verdict.Describe(), HasSubstr("LSE of batch 0 head 0 row 3"));
}

TEST(RowCheck, NanMustStandWhereItShouldAndNowhereElse) {
  HostProblem problem = Answered(Options(DataType::kFloat32));
  SetOut(&problem, 5, std::nanf(""));
  EXPECT_TRUE(std::isinf(CheckAll(problem).worst));

  HostProblem nan(Options(DataType::kFloat32));
  nan.SetV(0, 0, 0, 0, std::nanf(""));
  kernels::reference::Plain(nan.problem());
  EXPECT_LE(CheckAll(nan).worst, 1);
  SetOut(&nan, 0, 0.5f);  // saw it, and does not show it
  EXPECT_TRUE(std::isinf(CheckAll(nan).worst));
}

// Callers may send such numbers: they raise no alarm.
TEST(RowCheck, WhatFp32DoesNotHoldIsNotJudged) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const DataType dtype : {DataType::kFloat32, DataType::kBFloat16}) {
    HostProblem scores(Options(dtype));
    SetOut(&scores, 0, kNan);
    EXPECT_GT(CheckAll(scores).worst, 1);
    scores.problem().softmax_scale = 3.4e38f;
    kernels::reference::Plain(scores.problem());
    SetOut(&scores, 0, kNan);
    EXPECT_LE(CheckAll(scores).worst, 1) << CheckAll(scores).Describe();

    HostProblem sums(Options(dtype));
    auto* v = const_cast<void*>(sums.problem().v.data);
    for (int64_t i = 0; i < 2 * 45 * 2 * 24; ++i) {
      kernels::StoreFromFloat(v, dtype, i, 3e38f);
    }
    kernels::reference::Plain(sums.problem());
    EXPECT_LE(CheckAll(sums).worst, 1);
    SetOut(&sums, 24 * 4 * 20, std::numeric_limits<float>::infinity());
    EXPECT_LE(CheckAll(sums).worst, 1) << CheckAll(sums).Describe();
  }
}

TEST(RowCheck, ChosenRowsHoldTheEndsAndAreSorted) {
  const HostProblem problem(Options(DataType::kFloat32));
  const auto rows = ChooseRows(problem.problem(), 3, 4, 7);
  const auto key = [](const AnswerRow& at) {
    return std::tuple(at.b, at.head, at.row);
  };
  EXPECT_EQ(key(rows.front()), std::tuple(0, 0, 0));
  EXPECT_EQ(key(rows.back()), std::tuple(1, 3, 36));
  EXPECT_LE(rows.size(), 12u);
  for (size_t i = 1; i < rows.size(); ++i) {
    EXPECT_LT(key(rows[i - 1]), key(rows[i]));
  }
}

TEST(RowCheck, NothingToCheckPasses) {
  ProblemOptions options = Options(DataType::kFloat32);
  options.batch = 0;
  const HostProblem empty(options);
  EXPECT_TRUE(ChooseRows(empty.problem(), 4, 4, 1).empty());
  EXPECT_EQ(CheckAll(empty).worst, 0);
}

}  // namespace
}  // namespace attendant::testing
