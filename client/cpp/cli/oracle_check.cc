#include "client/cpp/cli/oracle_check.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cpp/cli/kernel_type.h"
#include "client/cpp/cli/reference_problem.h"
#include "kernels/base/data_type.h"
#include "kernels/reference/oracle.h"

namespace attendant::client::cli {
namespace {

using kernels::AttentionProblem;

// O's and LSE's stored batch entries: THD has one, whatever its batch.
struct OutputShape {
  int64_t entries, rows, heads, head_dim;
  Layout layout;

  OutputShape(const AttendArgs& args, const AttentionProblem& problem)
      : entries(args.layout == Layout::kTHD ? 1 : problem.batch),
        rows(problem.rows_q),
        heads(problem.num_q_heads),
        head_dim(problem.head_dim_v),
        layout(args.layout) {}

  std::vector<int64_t> out() const {
    if (layout == Layout::kTHD) return {rows, heads, head_dim};
    if (layout == Layout::kBHSD) return {entries, heads, rows, head_dim};
    return {entries, rows, heads, head_dim};
  }
  std::vector<int64_t> lse() const {
    if (layout == Layout::kTHD) return {heads, rows};
    return {entries, heads, rows};
  }
  // Index in the answer of the oracle's element (b, i, h, d).
  int64_t OutIndex(int64_t b, int64_t i, int64_t h, int64_t d) const {
    const int64_t row = layout == Layout::kBHSD ? (b * heads + h) * rows + i
                                                : (b * rows + i) * heads + h;
    return row * head_dim + d;
  }
};

double LargestValue(const AttentionProblem& problem, int64_t entries) {
  double largest = 0;
  for (int64_t b = 0; b < problem.batch; ++b) {
    const kernels::SequenceBounds& sequence = problem.sequence(b);
    const int64_t entry = entries == 1 && problem.batch > 1 ? 0 : b;
    for (int64_t j = 0; j < sequence.len_kv; ++j) {
      for (int64_t h = 0; h < problem.num_kv_heads; ++h) {
        const int64_t first = entry * problem.v.batch_stride +
                              (sequence.kv_begin + j) * problem.v.row_stride +
                              h * problem.v.head_stride;
        for (int64_t d = 0; d < problem.head_dim_v; ++d) {
          const double value = std::abs(
              kernels::LoadAsFloat(problem.v.data, problem.dtype, first + d));
          if (std::isfinite(value)) largest = std::max(largest, value);
        }
      }
    }
  }
  return largest;
}

// True if both are the same NaN or infinity, or both finite.
bool SamePlace(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return (!std::isinf(a) && !std::isinf(b)) || a == b;
}

// What the plain implementation gives, in the answer's dtype.
std::vector<std::byte> PlainOut(AttentionProblem problem,
                                const OutputShape& shape,
                                kernels::DataType dtype) {
  const int64_t row = shape.heads * shape.head_dim;
  std::vector<std::byte> out(static_cast<size_t>(
      std::max<int64_t>(shape.entries * shape.rows * row, 1) *
      kernels::SizeOf(dtype)));
  problem.output_dtype = dtype;
  problem.out = {out.data(),
                 shape.layout == Layout::kTHD ? 0 : shape.rows * row, row,
                 shape.head_dim};
  problem.lse = nullptr;
  kernels::reference::Plain(problem);
  return out;
}

void CompareOut(const OutputShape& shape, const AttentionProblem& problem,
                const std::vector<double>& oracle, const Tensor& out,
                CheckReport* report) {
  const kernels::DataType dtype = ToKernelType(out.dtype);
  const std::vector<std::byte> plain = PlainOut(problem, shape, dtype);
  double worst = -1;
  int64_t e = 0;
  for (int64_t b = 0; b < shape.entries; ++b) {
    for (int64_t i = 0; i < shape.rows; ++i) {
      for (int64_t h = 0; h < shape.heads; ++h) {
        for (int64_t d = 0; d < shape.head_dim; ++d, ++e) {
          const double expected = oracle[static_cast<size_t>(e)];
          const double got =
              kernels::LoadAsFloat(out.data, dtype, shape.OutIndex(b, i, h, d));
          const double from_plain =
              kernels::LoadAsFloat(plain.data(), dtype, e);
          const bool same = SamePlace(got, expected);
          const bool finite = std::isfinite(expected) && std::isfinite(got);
          const double error = finite ? std::abs(got - expected)
                               : same ? 0
                                      : HUGE_VAL;
          if (!same) ++report->misplaced;
          if (finite) report->out_error = std::max(report->out_error, error);
          if (std::isfinite(from_plain) && std::isfinite(expected)) {
            report->plain_error =
                std::max(report->plain_error, std::abs(from_plain - expected));
          }
          if (error > worst) {
            worst = error;
            report->worst = absl::StrFormat(
                "batch %d, row %d, head %d, column %d: %.9g, oracle %.9g", b, i,
                h, d, got, expected);
          }
        }
      }
    }
  }
  report->elements = e;
}

void CompareLse(const std::vector<double>& oracle, const Tensor& lse,
                bool is_fp32, CheckReport* report) {
  double largest_share = -1;
  for (size_t e = 0; e < oracle.size(); ++e) {
    const double got = lse.as<float>()[e];
    if (!SamePlace(got, oracle[e])) {
      ++report->misplaced;
      continue;
    }
    if (!std::isfinite(oracle[e])) continue;
    const double bound =
        is_fp32 ? 1e-5 * std::max(1.0, std::abs(oracle[e])) : 1e-3;
    const double error = std::abs(got - oracle[e]);
    if (error / bound > largest_share) {
      largest_share = error / bound;
      report->lse_error = error;
      report->lse_bound = bound;
    }
  }
  report->lse_checked = true;
}

std::string Text(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace

absl::StatusOr<CheckReport> CheckAnswer(
    const AttendArgs& args, const AttendResult& result,
    const std::function<void(double)>& progress) {
  const DataType given = args.qkv.given() ? args.qkv.dtype : args.q.dtype;
  const DataType compute = result.served_by.compute_dtype == DataType::kUnset
                               ? given
                               : result.served_by.compute_dtype;
  const absl::StatusOr<ReferenceProblem> reference =
      MakeReferenceProblem(args, compute);
  if (!reference.ok()) return reference.status();
  const AttentionProblem& problem = reference->problem;
  const OutputShape shape(args, problem);
  if (result.out.shape != shape.out()) {
    return absl::InternalError(absl::StrCat("the answer's shape is ",
                                            Text(result.out.shape),
                                            ", must be ", Text(shape.out())));
  }
  if (args.return_lse && result.lse.shape != shape.lse()) {
    return absl::InternalError(absl::StrCat("the LSE's shape is ",
                                            Text(result.lse.shape),
                                            ", must be ", Text(shape.lse())));
  }
  const kernels::reference::OracleResult oracle =
      kernels::reference::Oracle(problem, progress);
  CheckReport report;
  CompareOut(shape, problem, oracle.out, result.out, &report);
  report.out_bound =
      2 * report.plain_error + 1e-5 * LargestValue(problem, shape.entries);
  if (args.return_lse) {
    CompareLse(oracle.lse, result.lse, compute == DataType::kFloat32, &report);
  }
  return report;
}

}  // namespace attendant::client::cli
