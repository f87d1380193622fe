#include "kernels/reference/row_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <type_traits>

#include "kernels/reference/row.h"

namespace attendant::kernels::reference {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// One row in one precision: O (P and O rounded to `round_to` where given) and
// LSE.
template <typename Real>
struct ComputedRow {
  std::vector<Real> logits;  // of the visible keys
  std::vector<Real> out;
  Real lse = 0;
};

float RoundedTo(DataType dtype, float value) {
  if (dtype == DataType::kFloat16) {
    return Float16ToFloat(FloatToFloat16(value));
  }
  if (dtype == DataType::kBFloat16) {
    return BFloat16ToFloat(FloatToBFloat16(value));
  }
  return value;
}

template <typename Real>
ComputedRow<Real> Compute(const AttentionProblem& problem, const AnswerRow& at,
                          const KeysAndValues<Real>& kv,
                          std::vector<int64_t>* keys) {
  const SequenceBounds& sequence = problem.sequence(at.b);
  std::vector<Real> q(problem.head_dim), weights;
  LoadRow(problem.q, problem.dtype, at.b, sequence.q_begin + at.row, at.head,
          problem.head_dim, q.data());
  VisibleLogits(problem, at.b, at.head, at.row, q.data(), kv.k.data(), keys,
                &weights);
  ComputedRow<Real> result;
  result.logits = weights;
  result.lse = SoftmaxInPlace(problem, at.head, &weights);
  result.out.assign(problem.head_dim_v, 0);
  if (std::isinf(result.lse)) return result;  // sees nothing: O = 0
  for (size_t n = 0; n < keys->size(); ++n) {
    Real p = weights[n];
    if constexpr (std::is_same_v<Real, float>) p = RoundedTo(problem.dtype, p);
    const Real* v = &kv.v[(*keys)[n] * problem.head_dim_v];
    for (int64_t d = 0; d < problem.head_dim_v; ++d) result.out[d] += p * v[d];
  }
  return result;
}

float ServedOut(const AttentionProblem& problem, const AnswerRow& at,
                int64_t d) {
  return LoadAsFloat(
      problem.out.data, problem.output_dtype,
      at.b * problem.out.batch_stride +
          (problem.sequence(at.b).q_begin + at.row) * problem.out.row_stride +
          at.head * problem.out.head_stride + d);
}

// Half the distance of 16-bit numbers at `value`; 0 for fp32.
double HalfUnit(DataType dtype, double value) {
  if (dtype == DataType::kFloat32 || value == 0) return 0;
  const int mantissa_bits = dtype == DataType::kBFloat16 ? 8 : 11;
  return std::ldexp(1.0, std::ilogb(value) - mantissa_bits);
}

// Values that are not finite must be of the same kind, NaN or an infinity
// (whose sign rounding may turn): 0 then, infinite if not; nothing for two
// finite ones.
std::optional<double> ErrorOfKind(double served, double right) {
  if (std::isnan(right)) return std::isnan(served) ? 0 : kInfinity;
  if (std::isinf(right)) return std::isfinite(served) ? kInfinity : 0;
  if (!std::isfinite(served)) return kInfinity;
  return std::nullopt;
}

// True if fp32 holds the row's scores well enough that two orders of adding up
// give one answer.
bool HoldsScores(DataType dtype, const std::vector<float>& plain,
                 const std::vector<double>& right) {
  const double most_error = dtype == DataType::kFloat32 ? 1e-4 : 1e-3;
  for (size_t n = 0; n < right.size(); ++n) {
    if (std::isnan(right[n]) || plain[n] == right[n]) continue;
    if (!(std::abs(plain[n] - right[n]) <= most_error)) return false;
  }
  return true;
}

class Checker {
 public:
  explicit Checker(const AttentionProblem& problem) : problem_(problem) {}

  void Add(const AnswerRow& at) {
    const int64_t kv_head = at.head / problem_.group_size();
    if (kv64_ == nullptr || at.b != b_ || kv_head != kv_head_) {
      kv64_ = std::make_unique<KeysAndValues<double>>(problem_, at.b, kv_head);
      kv32_ = std::make_unique<KeysAndValues<float>>(problem_, at.b, kv_head);
      b_ = at.b;
      kv_head_ = kv_head;
    }
    std::vector<int64_t> keys;
    const auto plain = Compute(problem_, at, *kv32_, &keys);
    const auto right = Compute(problem_, at, *kv64_, &keys);
    const double max_v = MostOfV(keys);
    // A kernel adds up e^(S - max) V and divides once, at the end.
    if (!HoldsScores(problem_.dtype, plain.logits, right.logits) ||
        max_v * static_cast<double>(keys.size()) >
            std::numeric_limits<float>::max()) {
      return;
    }
    max_v_ = std::max(max_v_, max_v);
    for (int64_t d = 0; d < problem_.head_dim_v; ++d)
      AddOut(at, d, plain, right);
    AddLse(at, right.lse);
  }

  RowVerdict Verdict() const {
    RowVerdict verdict = lse_;
    double plain =
        std::max(plain_error_, HalfUnit(problem_.output_dtype, max_out_));
    // Of a handful of outputs P's rounding may have favoured all.
    constexpr int64_t kHandful = 512;
    if (outputs_ < kHandful) {
      plain = std::max(plain, HalfUnit(problem_.dtype, max_v_));
    }
    // bf16 products take what is below the least normal number for 0.
    const double tolerance =
        2 * plain + 1e-5 * max_v_ + std::numeric_limits<float>::min();
    const double worst = out_error_ / tolerance;
    if (worst > verdict.worst) {
      verdict = {worst, out_at_, false, out_error_, tolerance};
    }
    return verdict;
  }

 private:
  // The largest finite |V| of these keys.
  double MostOfV(const std::vector<int64_t>& keys) const {
    double most = 0;
    for (const int64_t key : keys) {
      for (int64_t d = 0; d < problem_.head_dim_v; ++d) {
        const double v = std::abs(kv64_->v[key * problem_.head_dim_v + d]);
        if (std::isfinite(v)) most = std::max(most, v);
      }
    }
    return most;
  }

  void AddOut(const AnswerRow& at, int64_t d, const ComputedRow<float>& plain,
              const ComputedRow<double>& right) {
    const double served = ServedOut(problem_, at, d);
    double error = std::abs(served - right.out[d]);
    ++outputs_;
    if (const auto kind = ErrorOfKind(served, right.out[d])) {
      error = *kind;
    } else {
      max_out_ = std::max(max_out_, std::abs(right.out[d]));
      const double plain_out = RoundedTo(problem_.output_dtype, plain.out[d]);
      if (std::isfinite(plain_out)) {
        plain_error_ =
            std::max(plain_error_, std::abs(plain_out - right.out[d]));
      }
    }
    if (error > out_error_) {
      out_error_ = error;
      out_at_ = at;
    }
  }

  void AddLse(const AnswerRow& at, double right) {
    if (problem_.lse == nullptr) return;
    const double served =
        problem_.lse[at.b * problem_.lse_batch_stride +
                     at.head * problem_.lse_head_stride +
                     problem_.sequence(at.b).q_begin + at.row];
    const bool is_fp32 = problem_.dtype == DataType::kFloat32;
    const double tolerance =
        (is_fp32 ? 1e-5 * std::max(1.0, std::abs(right)) : 1e-3) +
        std::ldexp(std::abs(right), -23);  // fp32 has no finer
    double error =
        ErrorOfKind(served, right).value_or(std::abs(served - right));
    if (right == -kInfinity) error = served == right ? 0 : kInfinity;
    const double worst = error == 0 ? 0 : error / tolerance;
    if (worst > lse_.worst) lse_ = {worst, at, true, error, tolerance};
  }

  const AttentionProblem& problem_;
  std::unique_ptr<KeysAndValues<double>> kv64_;
  std::unique_ptr<KeysAndValues<float>> kv32_;
  int64_t b_ = 0, kv_head_ = 0;
  double plain_error_ = 0, out_error_ = 0, max_out_ = 0, max_v_ = 0;
  int64_t outputs_ = 0;
  AnswerRow out_at_;
  RowVerdict lse_;
};

// `count` of 0..size-1: the first, the last, others by chance; sorted.
std::vector<int64_t> Choose(int64_t size, int64_t count,
                            std::mt19937_64* random) {
  std::vector<int64_t> chosen;
  if (size <= count) {
    for (int64_t i = 0; i < size; ++i) chosen.push_back(i);
    return chosen;
  }
  chosen = {0, size - 1};
  std::uniform_int_distribution<int64_t> any(0, size - 1);
  while (static_cast<int64_t>(chosen.size()) < count) {
    chosen.push_back(any(*random));
  }
  chosen.resize(count);
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

}  // namespace

std::string RowVerdict::Describe() const {
  std::ostringstream text;
  text << (in_lse ? "LSE" : "O") << " of batch " << where.b << " head "
       << where.head << " row " << where.row << " is off by " << error
       << ", allowed " << tolerance;
  return text.str();
}

RowVerdict CheckRows(const AttentionProblem& problem,
                     std::span<const AnswerRow> rows) {
  Checker checker(problem);
  for (const AnswerRow& at : rows) checker.Add(at);
  return checker.Verdict();
}

std::vector<AnswerRow> ChooseRows(const AttentionProblem& problem,
                                  int64_t heads, int64_t rows, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<AnswerRow> chosen;
  for (const int64_t pair :
       Choose(problem.batch * problem.num_q_heads, heads, &random)) {
    const int64_t b = pair / problem.num_q_heads;
    for (const int64_t row : Choose(problem.sequence(b).len_q, rows, &random)) {
      chosen.push_back({b, pair % problem.num_q_heads, row});
    }
  }
  return chosen;
}

}  // namespace attendant::kernels::reference
