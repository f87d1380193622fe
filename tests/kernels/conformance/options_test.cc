// Every option of a request, alone and together, against the oracle.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/kernels/conformance/conformance.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

ProblemOptions Middle(DataType dtype, int64_t seed) {
  ProblemOptions options;
  options.dtype = dtype;
  options.batch = 2;
  options.num_q_heads = 4;
  options.num_kv_heads = 2;
  options.head_dim = seed % 2 == 0 ? 64 : 128;
  options.seqlen_q = seed % 3 == 0 ? 1 : 77;
  options.seqlen_kv = 150;
  options.bottom_right = seed % 4 < 2;
  options.seed = seed;
  return options;
}

class OptionsTest : public ConformanceTest {};

TEST_P(OptionsTest, Windows) {
  std::vector<HostProblem> problems;
  int64_t seed = 0;
  for (const int64_t left : {-1, 0, 1, 2, 3, 149, 150, 151}) {
    for (const int64_t right : {-1, 0, 1, 40}) {
      ProblemOptions options = Middle(dtype(seed), seed);
      options.batch = 1;
      options.window_left = left;
      options.window_right = right;
      options.causal = seed % 2 == 0;
      problems.emplace_back(options);
      ++seed;
    }
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, WindowsWiderThan32Bits) {
  std::vector<HostProblem> problems;
  int64_t seed = 0;
  for (const int64_t width :
       {int64_t{1} << 31, (int64_t{1} << 32) + 1, int64_t{1} << 40}) {
    for (const bool left : {false, true}) {
      ProblemOptions options = Middle(dtype(seed), seed);
      options.window_left = left ? width : 3;
      options.window_right = left ? 2 : width;
      problems.emplace_back(options);
      ++seed;
    }
  }
  CheckGrouped(problems);
}

// tanh of a small number keeps its digits: the cap is then as good as none.
TEST_P(OptionsTest, SoftcapFarAboveTheLogits) {
  std::vector<HostProblem> problems;
  int64_t seed = 0;
  for (const float softcap : {300.0f, 1e4f, 1e6f, 1e20f}) {
    for (const DataType type : dtypes()) {
      ProblemOptions options = Middle(type, ++seed);
      options.softcap = softcap;
      options.softmax_scale = seed % 2 == 0 ? 1.0f : 0.1f;
      problems.emplace_back(options);
    }
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, SoftcapAlibiAndSinks) {
  std::vector<HostProblem> problems;
  for (int64_t seed = 0; seed < 48; ++seed) {
    ProblemOptions options = Middle(dtype(seed), seed);
    options.softcap = seed & 1 ? (seed & 8 ? 50.0f : 2.0f) : 0.0f;
    options.alibi = seed & 2;
    options.alibi_per_batch = seed & 16;
    options.sinks = seed & 4;
    options.causal = seed % 3 == 1;
    options.window_left = seed % 5 == 0 ? 30 : -1;
    // Logits of about +-40 where the cap is 50.
    if (seed & 8) options.softmax_scale = 1.0f;
    problems.emplace_back(options);
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, MasksOfEveryKindAndBroadcast) {
  std::vector<HostProblem> problems;
  int64_t seed = 0;
  for (const MaskKind kind :
       {MaskKind::kBoolBytes, MaskKind::kBoolBits, MaskKind::kAdditive}) {
    for (int variant = 0; variant < 8; ++variant) {
      ProblemOptions options = Middle(dtype(seed), seed);
      options.mask = kind;
      options.mask_per_batch = variant & 1;
      options.mask_per_head = variant & 2;
      options.mask_dtype = variant & 4 ? options.dtype : DataType::kFloat32;
      options.causal = variant % 3 == 0;
      options.row_gap = variant % 4 == 1 ? 3 : 0;
      options.softcap = variant == 5 ? 3.0f : 0.0f;
      options.alibi = variant == 6;
      options.sinks = variant == 7;
      if (variant == 2) {
        options.lens_q = {options.seqlen_q, 0};
        options.lens_kv = {99, 150};
        options.skips_kv = {51, 0};
      }
      problems.emplace_back(options);
      ++seed;
    }
  }
  CheckGrouped(problems);
}

// One row of entries for all queries: a key padding mask.
TEST_P(OptionsTest, MasksBroadcastOverQueries) {
  std::vector<HostProblem> problems;
  for (const MaskKind kind :
       {MaskKind::kBoolBytes, MaskKind::kBoolBits, MaskKind::kAdditive}) {
    for (const int64_t len_q : {1, 77}) {
      ProblemOptions options = Middle(dtype(len_q), 1);
      options.seqlen_q = len_q;
      options.mask = kind;
      options.mask_per_batch = true;
      HostProblem problem(options);
      problem.problem().mask.row_stride = 0;
      problems.push_back(std::move(problem));
    }
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, MasksOfPackedSequencesCountFromEachSequence) {
  std::vector<HostProblem> problems;
  for (const MaskKind kind :
       {MaskKind::kBoolBytes, MaskKind::kBoolBits, MaskKind::kAdditive}) {
    for (const bool per_batch : {false, true}) {
      ProblemOptions options;
      options.dtype = dtype(static_cast<int64_t>(kind));
      options.layout = Layout::kThd;
      options.batch = 3;
      options.num_q_heads = options.num_kv_heads = 2;
      options.lens_q = {20, 0, 70};
      options.lens_kv = {81, 5, 70};
      options.skips_q = {0, 2, 1};
      options.mask = kind;
      options.mask_per_batch = per_batch;
      options.mask_per_head = true;
      options.causal = true;
      problems.emplace_back(options);
    }
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, ASinkOfMinusInfinityIsNone) {
  for (const DataType type : dtypes()) {
    ProblemOptions options = Middle(type, 1);
    HostProblem without(options);
    options.sinks = true;
    HostProblem with(options);
    for (float& sink : with.sinks()) sink = kMinusInfinity;
    Check(without);
    Check(with);
    // Far above and far below every logit.
    with.sinks()[0] = 200.0f;
    with.sinks()[1] = -200.0f;
    Check(with);
  }
}

TEST_P(OptionsTest, AdditiveMaskOfMinusInfinity) {
  for (const DataType type : dtypes()) {
    for (const DataType mask_dtype : {DataType::kFloat32, type}) {
      ProblemOptions options = Middle(type, 2);
      options.mask = MaskKind::kAdditive;
      options.mask_dtype = mask_dtype;
      HostProblem problem(options);
      // Row 0 sees -inf alone; row 1 no first block, row 2 no last one.
      problem.FillMask([&](int64_t, int64_t, int64_t i, int64_t j) {
        if (i == 0) return kMinusInfinity;
        if (i == 1) return j < 128 ? kMinusInfinity : 0.5f;
        if (i == 2) return j >= 64 ? kMinusInfinity : 0.5f;
        return j % 3 == 0 ? kMinusInfinity : 0.0f;
      });
      Check(problem);
    }
  }
}

// The lowest float is a number: a row of nothing else is a plain mean, as
// PyTorch has it. (LSE is then near the end of fp32's range and not asked for.)
TEST_P(OptionsTest, AdditiveMaskOfTheLowestFloat) {
  for (const DataType type : dtypes()) {
    for (const DataType mask_dtype : {DataType::kFloat32, type}) {
      ProblemOptions options = Middle(type, 2);
      options.mask = MaskKind::kAdditive;
      options.mask_dtype = mask_dtype;
      options.lse = false;
      HostProblem problem(options);
      const float lowest = mask_dtype == DataType::kFloat16 ? -65504.0f
                           : mask_dtype == DataType::kBFloat16
                               ? -3.3895314e38f
                               : -std::numeric_limits<float>::max();
      problem.FillMask([&](int64_t, int64_t, int64_t i, int64_t j) {
        if (i == 1) return lowest;
        if (i == 2) return j % 3 == 0 ? kMinusInfinity : lowest;
        return j % 3 == 1 || j < 64 ? lowest : 0.5f;
      });
      Check(problem);
    }
  }
}

TEST_P(OptionsTest, BooleanMaskWithRowsThatSeeNothing) {
  for (const MaskKind kind : {MaskKind::kBoolBytes, MaskKind::kBoolBits}) {
    for (const DataType type : dtypes()) {
      ProblemOptions options = Middle(type, 4);
      options.mask = kind;
      options.sinks = type == dtypes()[0];
      HostProblem problem(options);
      problem.FillMask([](int64_t, int64_t, int64_t i, int64_t j) {
        if (i % 5 == 0) return 0.0f;                          // nothing
        if (i % 5 == 1) return static_cast<float>(j == 149);  // the last key
        return static_cast<float>(j < 64 ? 0 : j % 2);        // no first block
      });
      Check(problem);
    }
  }
}

TEST_P(OptionsTest, AlibiAtAGreatDistance) {
  std::vector<HostProblem> problems;
  for (const DataType type : dtypes()) {
    ProblemOptions options = Middle(type, 5);
    options.alibi = true;
    HostProblem problem(options);
    for (kernels::SequenceBounds& sequence : problem.problem().sequences) {
      sequence.diagonal_shift = 131072;
    }
    for (size_t h = 0; h < problem.slopes().size(); ++h) {
      problem.slopes()[h] = h % 2 == 0 ? 0.5f : 1e-3f;
    }
    problems.push_back(std::move(problem));
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, Fp32OutputOf16BitInput) {
  std::vector<HostProblem> problems;
  for (int64_t seed = 0; seed < 8; ++seed) {
    const DataType type = dtype(seed);
    ProblemOptions options = Middle(type, seed);
    options.output_dtype = DataType::kFloat32;
    options.head_dim = seed < 4 ? 128 : 72;
    options.layout = seed % 2 == 0 ? Layout::kBshd : Layout::kBhsd;
    options.lse = seed % 3 != 0;
    problems.emplace_back(options);
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, WithoutLse) {
  std::vector<HostProblem> problems;
  for (int64_t seed = 0; seed < 6; ++seed) {
    ProblemOptions options = Middle(dtype(seed), seed);
    options.lse = false;
    options.causal = seed % 2 == 0;
    problems.emplace_back(options);
  }
  CheckGrouped(problems);
}

TEST_P(OptionsTest, TwoHalvesMergeToTheWhole) {
  for (const DataType type : dtypes()) {
    for (const int64_t len_q : {1, 70}) {
      ProblemOptions options;
      options.dtype = type;
      options.output_dtype = DataType::kFloat32;
      options.seqlen_q = len_q;
      options.seqlen_kv = 300;
      HostProblem whole(options), front(options), back(options);
      front.problem().sequences[0].len_kv = 236;
      back.problem().sequences[0].kv_begin = 236;
      back.problem().sequences[0].len_kv = 64;
      if (!Run(whole) || !Run(front) || !Run(back)) continue;
      for (int64_t i = 0; i < len_q; ++i) {
        const double a = front.Lse(0, 0, i), b = back.Lse(0, 0, i);
        const double lse =
            std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
        EXPECT_NEAR(whole.Lse(0, 0, i), lse, 1e-5);
        for (int64_t d = 0; d < 64; ++d) {
          const double merged = front.Out(0, i, 0, d) * std::exp(a - lse) +
                                back.Out(0, i, 0, d) * std::exp(b - lse);
          ASSERT_NEAR(whole.Out(0, i, 0, d), merged,
                      type == DataType::kFloat32 ? 1e-5 : 6e-3);
        }
      }
    }
  }
}

TEST_P(OptionsTest, RandomMixesOfEverything) {
  const int64_t turns = rounds(60, is_long() ? 12 : 3);
  for (int64_t round = 0; round < turns; ++round) {
    std::vector<HostProblem> problems;
    for (int64_t n = 0; n < 24; ++n) {
      RandomBits bits(1000 * round + n);
      ProblemOptions options;
      options.seed = bits.Next();
      options.dtype = dtype(bits.Below(3));
      options.layout = static_cast<Layout>(bits.Below(3));
      options.batch = 1 + bits.Below(3);
      options.num_kv_heads = 1 + bits.Below(3);
      options.num_q_heads = options.num_kv_heads * (1 + bits.Below(4));
      options.head_dim = 1 + bits.Below(160);
      if (bits.Below(3) == 0) options.head_dim = 64 << bits.Below(3);
      if (bits.Below(4) == 0) options.head_dim_v = 1 + bits.Below(256);
      options.seqlen_q =
          bits.Below(3) == 0 ? 1 + bits.Below(4) : bits.Below(90);
      options.seqlen_kv = bits.Below(200);
      if (bits.Below(2) == 0) {
        for (int64_t b = 0; b < options.batch; ++b) {
          options.lens_q.push_back(bits.Below(options.seqlen_q + 1));
          options.lens_kv.push_back(bits.Below(options.seqlen_kv + 1));
        }
      }
      options.causal = bits.Below(2);
      options.bottom_right = bits.Below(2);
      options.window_left = bits.Below(4) == 0 ? bits.Below(80) : -1;
      options.window_right = bits.Below(4) == 0 ? bits.Below(80) : -1;
      options.softcap = bits.Below(4) == 0 ? 5.0f : 0.0f;
      options.alibi = bits.Below(4) == 0;
      options.alibi_per_batch = bits.Below(2);
      options.sinks = bits.Below(4) == 0;
      if (bits.Below(3) == 0) {
        options.mask = static_cast<MaskKind>(1 + bits.Below(3));
      }
      options.mask_dtype = bits.Below(2) ? options.dtype : DataType::kFloat32;
      options.mask_per_batch = bits.Below(2);
      options.mask_per_head = bits.Below(2);
      options.lse = bits.Below(4) != 0;
      options.row_gap = bits.Below(3) == 0 ? bits.Below(9) : 0;
      options.head_gap = bits.Below(3) == 0 ? bits.Below(9) : 0;
      options.base_offset = bits.Below(3) == 0 ? bits.Below(9) : 0;
      if (bits.Below(4) == 0) options.output_dtype = DataType::kFloat32;
      problems.emplace_back(options);
    }
    CheckGrouped(problems);
    if (HasFailure()) return;
  }
}

ATTENDANT_CONFORMANCE_SUITE(OptionsTest);

}  // namespace
}  // namespace attendant::testing
