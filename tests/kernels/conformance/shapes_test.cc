// Sizes, layouts and strides: every tail, every head size, every grouping.
#include <algorithm>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

class ShapesTest : public ConformanceTest {
 protected:
  // Checks all of `options` in grouped launches of up to 64.
  void CheckAll(const std::vector<ProblemOptions>& options) {
    constexpr size_t kGroup = 64;
    for (size_t begin = 0; begin < options.size(); begin += kGroup) {
      std::vector<HostProblem> problems;
      for (size_t n = begin; n < std::min(begin + kGroup, options.size());
           ++n) {
        problems.emplace_back(options[n]);
      }
      CheckGrouped(problems);
      if (HasFailure()) return;
    }
  }
};

std::vector<int64_t> TailLengths() {
  std::vector<int64_t> lengths = {1, 2, 15, 16, 17};
  for (const int64_t edge : {64, 80, 112, 128, 176, 192, 256}) {
    for (const int64_t around : {-1, 0, 1}) lengths.push_back(edge + around);
  }
  return lengths;
}

TEST_P(ShapesTest, TailsAroundEveryTileEdge) {
  const std::vector<int64_t> lengths = TailLengths();
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const int64_t head_dim : {64, 128, 256}) {
    for (const int64_t len_q : lengths) {
      for (const int64_t len_kv : lengths) {
        ++turn;
        // The quick tier takes every fourth pair of each head size.
        if (!is_long() && turn % 4 != 0) continue;
        for (const bool causal : {false, true}) {
          ProblemOptions options;
          options.dtype = dtype(turn);
          options.head_dim = head_dim;
          options.seqlen_q = len_q;
          options.seqlen_kv = len_kv;
          options.causal = causal;
          options.bottom_right = turn % 2 == 0;
          options.seed = turn;
          all.push_back(options);
        }
      }
    }
  }
  CheckAll(all);
}

TEST_P(ShapesTest, EveryHeadDim) {
  std::vector<ProblemOptions> all;
  for (int64_t head_dim = 1; head_dim <= 256; ++head_dim) {
    for (int64_t turn = 0; turn < (is_long() ? 2 : 1); ++turn) {
      ProblemOptions options;
      options.dtype = dtype(head_dim + turn);
      options.head_dim = head_dim;
      options.num_q_heads = 2;
      options.num_kv_heads = 1 + head_dim % 2;
      options.seqlen_q = turn == 0 ? 13 : 131;
      options.seqlen_kv = turn == 0 ? 37 : 150;
      options.causal = head_dim % 3 == 0;
      options.bottom_right = true;
      options.seed = head_dim;
      all.push_back(options);
    }
  }
  CheckAll(all);
}

TEST_P(ShapesTest, UnequalHeadDims) {
  const int64_t dims[][2] = {{64, 256}, {40, 80},  {128, 64}, {192, 128},
                             {1, 256},  {256, 1},  {7, 33},   {96, 64},
                             {72, 128}, {128, 72}, {200, 24}, {192, 192},
                             {8, 16},   {16, 8},   {255, 129}};
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const auto& [head_dim, head_dim_v] : dims) {
    for (const DataType type : dtypes()) {
      ProblemOptions options;
      options.dtype = type;
      options.head_dim = head_dim;
      options.head_dim_v = head_dim_v;
      options.num_q_heads = 2;
      options.num_kv_heads = 1;
      options.seqlen_q = turn % 2 == 0 ? 70 : 1;
      options.seqlen_kv = 131;
      options.causal = turn % 3 == 0;
      options.bottom_right = true;
      options.layout = turn % 4 == 0 ? Layout::kBhsd : Layout::kBshd;
      options.seed = ++turn;
      all.push_back(options);
    }
  }
  CheckAll(all);
}

TEST_P(ShapesTest, EveryGqaGroupSize) {
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const int64_t group : {1, 2, 3, 5, 6, 7, 8, 12, 16, 64, 128}) {
    for (const int64_t len_q : {1, 2, 5, 64, 129}) {
      for (const bool causal : {false, true}) {
        ++turn;
        if (!is_long() && group * len_q > 1500) continue;
        ProblemOptions options;
        options.dtype = dtype(turn);
        options.head_dim = turn % 2 == 0 ? 64 : 128;
        options.num_kv_heads = group <= 8 ? 2 : 1;
        options.num_q_heads = group * options.num_kv_heads;
        options.seqlen_q = len_q;
        options.seqlen_kv = 140;
        options.causal = causal;
        options.bottom_right = turn % 3 != 0;
        options.seed = turn;
        all.push_back(options);
      }
    }
  }
  CheckAll(all);
}

// Odd and even numbers of key blocks, and none, in every order.
TEST_P(ShapesTest, PackedSequencesOfManyLengths) {
  ProblemOptions options;
  options.layout = Layout::kThd;
  options.lens_q = {0, 5, 0, 0, 128, 0, 1, 130, 64, 17, 3, 200};
  options.lens_kv = {64, 128, 0, 256, 129, 0, 300, 1, 65, 0, 400, 127};
  options.batch = static_cast<int64_t>(options.lens_q.size());
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  for (const DataType type : dtypes()) {
    for (const bool causal : {false, true}) {
      for (const int64_t gap : {0, 3}) {
        options.dtype = type;
        options.causal = causal;
        options.bottom_right = causal;
        options.skips_q.assign(options.batch, gap);
        options.skips_kv.assign(options.batch, gap);
        HostProblem problem(options);
        Check(problem);
      }
    }
  }
}

TEST_P(ShapesTest, NothingToDo) {
  std::vector<HostProblem> problems;
  for (const Layout layout : {Layout::kBshd, Layout::kThd}) {
    for (int which = 0; which < 6; ++which) {
      ProblemOptions options;
      options.layout = layout;
      options.dtype = dtype(which);
      options.batch = which == 0 ? 0 : 3;
      options.num_q_heads = options.num_kv_heads = which == 1 ? 0 : 2;
      options.seqlen_q = which == 2 ? 0 : 4;
      options.seqlen_kv = which == 3 ? 0 : 70;
      if (which == 4) options.lens_kv = {0, 0, 0};
      if (which == 5) options.lens_q = {0, 0, 0};
      problems.emplace_back(options);
    }
  }
  for (HostProblem& problem : problems) Check(problem);
  CheckGrouped(problems);
  std::vector<HostProblem> none;
  const absl::Status status = RunGrouped(kernel(), Served(none));
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(ShapesTest, FullyMaskedRowsBeforeALateDiagonal) {
  for (const DataType type : dtypes()) {
    ProblemOptions options;
    options.dtype = type;
    options.head_dim = 128;
    options.num_q_heads = 2;
    options.num_kv_heads = 1;
    options.seqlen_q = 300;
    options.seqlen_kv = 100;
    options.causal = options.bottom_right = true;
    HostProblem problem(options);
    Check(problem);
    options.causal = false;  // rows past the last key's window
    options.bottom_right = false;
    options.window_left = 5;
    options.sinks = true;
    HostProblem late(options);
    Check(late);
  }
}

TEST_P(ShapesTest, DiagonalAtEveryOffset) {
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const int64_t offset : {1, 63, 64, 65, 79, 80, 81, 111, 112, 127}) {
    for (const int64_t sign : {1, -1}) {
      ProblemOptions options;
      options.dtype = dtype(turn);
      options.head_dim = turn % 3 == 0 ? 128 : 64;
      options.seqlen_q = 150 + (sign < 0 ? offset : 0);
      options.seqlen_kv = options.seqlen_q + sign * offset;
      options.causal = options.bottom_right = true;
      options.seed = ++turn;
      all.push_back(options);
    }
  }
  for (const int64_t more : {0, 1, 16, 48}) {
    ProblemOptions options;
    options.dtype = dtype(++turn);
    options.head_dim = 256;
    options.seqlen_q = options.seqlen_kv = (is_long() ? 640 : 320) + more;
    options.causal = true;
    all.push_back(options);
  }
  for (const int64_t block : {80, 112, 128, 176}) {
    for (const int64_t around : {-1, 0, 1}) {
      ProblemOptions options;
      options.dtype = dtype(++turn);
      options.head_dim = block == 80 ? 256 : 128;
      options.seqlen_q = 65;
      options.seqlen_kv = 4 * block + around;
      all.push_back(options);
    }
  }
  CheckAll(all);
}

TEST_P(ShapesTest, LayoutsAlignmentsAndGaps) {
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const Layout layout :
       {Layout::kBshd, Layout::kBhsd, Layout::kThd, Layout::kPackedQkv}) {
    for (const int64_t offset : {0, 1, 4, 8}) {
      for (const int64_t gap : {0, 1, 20}) {
        ProblemOptions options;
        options.dtype = dtype(turn);
        options.layout = layout;
        options.batch = 2;
        options.num_q_heads = 3;
        options.num_kv_heads = 3;
        options.head_dim = turn % 2 == 0 ? 40 : 64;
        options.seqlen_q = options.seqlen_kv = 67;
        options.base_offset = offset;
        options.row_gap = gap;
        options.head_gap = gap == 1 ? 3 : 0;
        options.causal = turn % 5 == 0;
        options.seed = ++turn;
        all.push_back(options);
      }
    }
  }
  CheckAll(all);
}

TEST_P(ShapesTest, RepeatedKeysAndStridesOfSizeOne) {
  std::vector<HostProblem> problems;
  for (int which = 0; which < 6; ++which) {
    ProblemOptions options;
    options.dtype = dtype(which);
    options.batch = which == 3 ? 1 : 2;
    options.num_q_heads = options.num_kv_heads = which == 3 ? 1 : 2;
    options.seqlen_q = 70;
    options.seqlen_kv = 90;
    HostProblem problem(options);
    kernels::AttentionProblem& p = problem.problem();
    if (which == 0) p.k.head_stride = p.v.head_stride = 0;
    if (which == 1) p.k.batch_stride = p.v.batch_stride = 0;
    if (which == 2) p.k.row_stride = 0;  // every key alike
    if (which == 4) p.q.batch_stride = p.q.head_stride = 0;
    if (which == 5) {  // O heads first, q rows first
      p.out.row_stride = 64;
      p.out.head_stride = 64 * 70;
    }
    if (which == 3) {
      p.q.batch_stride = p.k.head_stride = 1;
      p.v.batch_stride = p.v.head_stride = 7;
      p.out.head_stride = 3;
    }
    problems.push_back(std::move(problem));
  }
  CheckGrouped(problems);
}

TEST_P(ShapesTest, OneLaunchOfUnlikeProblems) {
  std::vector<HostProblem> problems;
  int64_t turn = 0;
  for (const int64_t head_dim : {72, 128}) {
    for (const int64_t group : {1, 7, 8}) {
      for (const float scale : {-0.1f, 0.0f, 0.09f}) {
        ProblemOptions options;
        options.dtype = dtype(turn);
        options.head_dim = head_dim;
        options.num_q_heads = group;
        options.num_kv_heads = 1;
        options.seqlen_q = turn % 2 == 0 ? 1 : (is_long() ? 8192 : 400) / group;
        options.seqlen_kv = 333;
        options.causal = true;
        options.bottom_right = turn % 3 == 0;
        options.softmax_scale = scale;
        options.seed = ++turn;
        problems.emplace_back(options);
      }
    }
  }
  CheckGrouped(problems);
}

TEST_P(ShapesTest, SplitKeysAtEveryBorder) {
  std::vector<ProblemOptions> all;
  int64_t turn = 0;
  for (const int64_t chunk : {256, 512, 1024, 2048}) {
    for (const int64_t around : {-1, 0, 1}) {
      for (const int64_t len_q : {1, 2, 4, 16}) {
        ++turn;
        if (!is_long() && turn % 3 != 0) continue;
        ProblemOptions options;
        options.dtype = dtype(turn);
        options.head_dim = turn % 2 == 0 ? 128 : 64;
        options.num_q_heads = 8;
        options.num_kv_heads = turn % 5 == 0 ? 1 : 2;
        options.seqlen_q = len_q;
        options.seqlen_kv = 2 * chunk + around;
        options.causal = options.bottom_right = turn % 2 == 0;
        // Some windows leave all but the last keys unseen.
        if (turn % 4 == 1) options.window_left = 100;
        if (turn % 4 == 1) options.bottom_right = true;
        options.sinks = turn % 7 == 0;
        options.seed = turn;
        all.push_back(options);
      }
    }
  }
  CheckAll(all);
}

ATTENDANT_CONFORMANCE_SUITE(ShapesTest);

}  // namespace
}  // namespace attendant::testing
