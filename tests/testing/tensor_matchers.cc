#include "tests/testing/tensor_matchers.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <optional>
#include <sstream>
#include <thread>

#include "kernels/base/check.h"
#include "kernels/reference/row.h"
#include "tests/testing/random.h"

namespace attendant::testing {
namespace {

using kernels::AttentionProblem;
using kernels::DataType;
using kernels::KeyRange;

struct Place {
  int64_t b, row, head, d;
};

int64_t StoredEntries(const AttentionProblem& p) {
  return p.HasPackedRows() ? 1 : p.batch;
}

// Calls visit(place, index into the oracle's contiguous O) for all of O.
template <typename Visit>
void ForEachOutput(const AttentionProblem& p, const Visit& visit) {
  int64_t index = 0;
  for (int64_t b = 0; b < StoredEntries(p); ++b) {
    for (int64_t row = 0; row < p.rows_q; ++row) {
      for (int64_t head = 0; head < p.num_q_heads; ++head) {
        for (int64_t d = 0; d < p.head_dim_v; ++d) {
          visit(Place{b, row, head, d}, index++);
        }
      }
    }
  }
}

float OutAt(const AttentionProblem& p, const Place& at) {
  return kernels::LoadAsFloat(p.out.data, p.output_dtype,
                              at.b * p.out.batch_stride +
                                  at.row * p.out.row_stride +
                                  at.head * p.out.head_stride + at.d);
}

std::ostream& operator<<(std::ostream& out, const Place& at) {
  return out << "(batch " << at.b << ", row " << at.row << ", head " << at.head
             << ", dim " << at.d << ")";
}

// True if some row of some query head of the group sees key j.
bool IsSeen(const AttentionProblem& p, int64_t b, int64_t kv_head, int64_t j) {
  const kernels::SequenceBounds& sequence = p.sequence(b);
  const kernels::MaskView& mask = p.mask;
  const int64_t heads =
      mask.kind == kernels::MaskKind::kNone ? 1 : p.group_size();
  for (int64_t g = 0; g < heads; ++g) {
    for (int64_t i = 0; i < sequence.len_q; ++i) {
      const KeyRange keys = VisibleKeys(p, sequence, i);
      if (j < keys.begin || j >= keys.end) continue;
      const int64_t row =
          kernels::reference::MaskRow(p, b, kv_head * p.group_size() + g, i);
      if (kernels::reference::MaskAllows(
              mask, row, mask.padded_positions ? sequence.kv_begin + j : j)) {
        return true;
      }
    }
  }
  return false;
}

// Of the finite entries of V that some row sees.
double MaxAbsV(const AttentionProblem& p) {
  double max = 0;
  for (int64_t b = 0; b < p.batch; ++b) {
    const kernels::SequenceBounds& sequence = p.sequence(b);
    for (int64_t h = 0; h < p.num_kv_heads; ++h) {
      for (int64_t j = 0; j < sequence.len_kv; ++j) {
        if (!IsSeen(p, b, h, j)) continue;
        const int64_t first = b * p.v.batch_stride +
                              (sequence.kv_begin + j) * p.v.row_stride +
                              h * p.v.head_stride;
        for (int64_t d = 0; d < p.head_dim_v; ++d) {
          const double v =
              std::abs(kernels::LoadAsFloat(p.v.data, p.dtype, first + d));
          if (std::isfinite(v)) max = std::max(max, v);
        }
      }
    }
  }
  return max;
}

double LseTolerance(DataType dtype, double lse) {
  const double spacing = std::ldexp(std::abs(lse), -23);  // fp32 has no finer
  const double allowed =
      dtype == DataType::kFloat32 ? 1e-5 * std::max(1.0, std::abs(lse)) : 1e-3;
  return allowed + spacing;
}

// Non-finite answers have to be of the same kind, NaN or an infinity.
bool SameKind(double got, double want) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return !std::isfinite(got);
  return std::isfinite(got);
}

::testing::AssertionResult LseMatches(const AttentionProblem& p,
                                      const Expectation& expectation) {
  if (p.lse == nullptr) return ::testing::AssertionSuccess();
  int64_t index = 0;
  for (int64_t b = 0; b < StoredEntries(p); ++b) {
    for (int64_t head = 0; head < p.num_q_heads; ++head) {
      for (int64_t row = 0; row < p.rows_q; ++row) {
        const double want = expectation.oracle.lse[index++];
        const double got =
            p.lse[b * p.lse_batch_stride + head * p.lse_head_stride + row];
        const bool right = std::isfinite(want) ? std::abs(got - want) <=
                                                     LseTolerance(p.dtype, want)
                           : std::isinf(want) ? got == want
                                              : !std::isfinite(got);
        if (right) continue;
        return ::testing::AssertionFailure()
               << "LSE " << got << ", oracle " << want << " at "
               << Place{b, row, head, -1};
      }
    }
  }
  return ::testing::AssertionSuccess();
}

// O and LSE, without what lies around them.
::testing::AssertionResult AnswerMatches(const AttentionProblem& p,
                                         const Expectation& expectation) {
  std::ostringstream wrong_kind;
  double worst = -1;
  Place worst_place{};
  double worst_want = 0;
  int64_t passing = 0, all = 0;
  ForEachOutput(p, [&](const Place& at, int64_t index) {
    const double want = expectation.oracle.out[index];
    const double got = OutAt(p, at);
    ++all;
    if (!SameKind(got, want)) {
      if (wrong_kind.tellp() == 0) {
        wrong_kind << "O " << got << ", oracle " << want << " at " << at;
      }
      return;
    }
    const double error = std::isfinite(want) ? std::abs(got - want) : 0;
    if (error <= expectation.out_tolerance) ++passing;
    if (error > worst) {
      worst = error;
      worst_place = at;
      worst_want = want;
    }
  });
  if (wrong_kind.tellp() != 0) {
    return ::testing::AssertionFailure() << wrong_kind.str();
  }
  if (worst > expectation.out_tolerance) {
    return ::testing::AssertionFailure()
           << "O is off by " << worst << " (allowed "
           << expectation.out_tolerance << ") at " << worst_place << ": "
           << OutAt(p, worst_place) << ", oracle " << worst_want << "; "
           << 100.0 * passing / all << " % pass";
  }
  return LseMatches(p, expectation);
}

// Rows [row, row + rows) of sequence b and a KV head, as a problem of its own.
AttentionProblem RowsOf(const AttentionProblem& whole, int64_t b,
                        int64_t kv_head, int64_t row, int64_t rows) {
  ATTENDANT_CHECK(whole.mask.kind == kernels::MaskKind::kNone ||
                  whole.mask.padded_positions);
  AttentionProblem part =
      kernels::CutProblem(whole, b, b + 1, kv_head, kv_head + 1);
  kernels::SequenceBounds& sequence = part.sequences[0];
  const int64_t first = sequence.q_begin + row;
  part.q.data = static_cast<const std::byte*>(part.q.data) +
                first * part.q.row_stride * SizeOf(part.dtype);
  part.out.data = static_cast<std::byte*>(part.out.data) +
                  first * part.out.row_stride * SizeOf(part.output_dtype);
  if (part.lse != nullptr) part.lse += first;
  if (part.mask.kind != kernels::MaskKind::kNone) {
    const int64_t entry_bytes = part.mask.kind == kernels::MaskKind::kAdditive
                                    ? SizeOf(part.mask.dtype)
                                    : 1;
    part.mask.data = static_cast<const std::byte*>(part.mask.data) +
                     first * part.mask.row_stride * entry_bytes;
  }
  part.rows_q = rows;
  sequence.q_begin = 0;
  sequence.len_q = rows;
  sequence.diagonal_shift += row;
  return part;
}

}  // namespace

Expectation::Expectation(const AttentionProblem& problem)
    : oracle(kernels::reference::Oracle(problem)) {
  AttentionProblem plain = problem;
  const int64_t heads = plain.num_q_heads;
  const int64_t entries = StoredEntries(plain);
  const int64_t outputs = oracle.out.size();
  std::vector<uint8_t> out(outputs * SizeOf(plain.output_dtype));
  plain.out = {.data = out.data(),
               .batch_stride =
                   entries <= 1 ? 0 : plain.rows_q * heads * plain.head_dim_v,
               .row_stride = heads * plain.head_dim_v,
               .head_stride = plain.head_dim_v};
  plain.lse = nullptr;
  kernels::reference::Plain(plain);
  double error = 0;
  for (int64_t n = 0; n < outputs; ++n) {
    const double e =
        std::abs(kernels::LoadAsFloat(out.data(), plain.output_dtype, n) -
                 oracle.out[n]);
    if (std::isfinite(e)) error = std::max(error, e);
  }
  const double max_v = MaxAbsV(plain);
  out_tolerance = 2 * error + 1e-5 * max_v;
}

std::vector<Expectation> ExpectationsOf(
    std::span<HostProblem* const> problems) {
  std::vector<std::optional<Expectation>> made(problems.size());
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t n = next++; n < problems.size(); n = next++) {
      made[n].emplace(*problems[n]);
    }
  };
  const size_t num_threads = std::min<size_t>(
      problems.size(), std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> threads;
    for (size_t n = 1; n < num_threads; ++n) threads.emplace_back(work);
    work();
  }
  std::vector<Expectation> expectations;
  for (auto& one : made) expectations.push_back(*std::move(one));
  return expectations;
}

::testing::AssertionResult Matches(const HostProblem& owner,
                                   const Expectation& expectation) {
  const std::string damage = owner.OutputDamage();
  ::testing::AssertionResult result =
      damage.empty() ? AnswerMatches(owner.problem(), expectation)
                     : ::testing::AssertionFailure() << damage;
  if (!result) result << "; of " << Describe(owner);
  return result;
}

::testing::AssertionResult MatchesOracleInSamples(const HostProblem& owner,
                                                  int64_t samples) {
  const std::string damage = owner.OutputDamage();
  if (!damage.empty()) {
    return ::testing::AssertionFailure()
           << damage << "; of " << Describe(owner);
  }
  RandomBits bits(owner.options().seed);
  for (int64_t n = 0; n < 3 * samples; ++n) {
    const int64_t b = bits.Below(owner.problem().batch);
    const int64_t head = bits.Below(owner.problem().num_kv_heads);
    const int64_t len_q = owner.problem().sequence(b).len_q;
    const int64_t rows = std::min<int64_t>(8, len_q);
    const int64_t last = len_q - rows;
    const int64_t row = n % 3 == 0   ? 0
                        : n % 3 == 1 ? last
                                     : bits.Below(last + 1);
    const AttentionProblem sample = RowsOf(owner.problem(), b, head, row, rows);
    ::testing::AssertionResult result =
        AnswerMatches(sample, Expectation(sample));
    if (!result) {
      return result << ", counted from row " << row << " of sequence " << b
                    << " and KV head " << head << "; of " << Describe(owner);
    }
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult MatchesOracle(const HostProblem& problem) {
  return Matches(problem, Expectation(problem));
}

::testing::AssertionResult SameAnswer(const HostProblem& a,
                                      const HostProblem& b) {
  return SameAnswer(a, b.AnswerBytes());
}

::testing::AssertionResult SameAnswer(const HostProblem& a,
                                      const std::vector<uint8_t>& want) {
  const std::vector<uint8_t> got = a.AnswerBytes();
  if (got == want) return ::testing::AssertionSuccess();
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure()
           << got.size() << " bytes, not " << want.size();
  }
  size_t first = 0, differing = 0;
  for (size_t n = got.size(); n-- > 0;) {
    if (got[n] != want[n]) {
      first = n;
      ++differing;
    }
  }
  return ::testing::AssertionFailure()
         << differing << " of " << got.size()
         << " bytes differ, the first at byte " << first
         << " of O, then LSE; of " << Describe(a);
}

std::string Describe(const HostProblem& owner) {
  const AttentionProblem& p = owner.problem();
  static constexpr const char* kLayouts[] = {"BSHD", "BHSD", "THD", "packed"};
  static constexpr const char* kMasks[] = {"", " bytes-mask", " bits-mask",
                                           " additive-mask"};
  std::ostringstream text;
  text << Name(p.dtype) << "->" << Name(p.output_dtype) << " "
       << kLayouts[static_cast<int>(owner.options().layout)] << " b" << p.batch
       << " h" << p.num_q_heads << "/" << p.num_kv_heads << " d" << p.head_dim
       << "/" << p.head_dim_v << " lens";
  for (size_t n = 0; n < p.sequences.size() && n < 8; ++n) {
    text << " " << p.sequences[n].len_q << "x" << p.sequences[n].len_kv;
  }
  if (p.causal) text << " causal";
  if (owner.options().bottom_right) text << " bottom-right";
  if (p.window_left >= 0) text << " left " << p.window_left;
  if (p.window_right >= 0) text << " right " << p.window_right;
  if (p.softcap > 0) text << " softcap " << p.softcap;
  if (!p.alibi_slopes.empty()) text << " alibi";
  if (!p.sinks.empty()) text << " sinks";
  text << kMasks[static_cast<int>(p.mask.kind)] << " scale " << p.softmax_scale
       << " seed " << owner.options().seed;
  return text.str();
}

}  // namespace attendant::testing
