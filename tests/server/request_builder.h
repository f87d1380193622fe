// Validated requests for tests of the engine, made without the validator.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/request/problem_validator.h"

namespace attendant::testing {

struct RequestOptions {
  int64_t batch = 1;
  int64_t num_q_heads = 1;
  int64_t num_kv_heads = 1;
  int64_t seqlen_q = 8;
  int64_t seqlen_kv = 8;
  int64_t head_dim = 16;
  kernels::DataType dtype = kernels::DataType::kFloat32;
  bool heads_first = false;        // BHSD, else BSHD
  std::vector<int64_t> lens_q{};   // used rows; empty = all
  std::vector<int64_t> lens_kv{};  // used keys; empty = all
  // THD: lens_q and lens_kv are the packed sequences' (batch of them).
  bool packed = false;
  bool causal = false;
  int priority = 0;
  std::string ordering_key{};
};

inline int64_t AlignUp256(int64_t bytes) { return (bytes + 255) / 256 * 256; }

// Strides of [batch, rows, heads, head_dim] in one of three layouts.
template <typename View>
void SetStrides(const RequestOptions& options, int64_t rows, int64_t heads,
                View* view) {
  const int64_t dim = options.head_dim;
  view->batch_stride = options.packed ? 0 : rows * heads * dim;
  view->row_stride = options.heads_first ? dim : heads * dim;
  view->head_stride = options.heads_first ? rows * dim : dim;
}

inline std::unique_ptr<server::ValidatedRequest> MakeRequest(
    const RequestOptions& options) {
  auto request = std::make_unique<server::ValidatedRequest>();
  kernels::AttentionProblem& problem = request->problem;
  problem.dtype = problem.output_dtype = options.dtype;
  problem.batch = options.batch;
  problem.num_q_heads = problem.whole_num_q_heads = options.num_q_heads;
  problem.num_kv_heads = problem.whole_num_kv_heads = options.num_kv_heads;
  problem.head_dim = problem.head_dim_v = options.head_dim;
  problem.softmax_scale =
      1.0f / std::sqrt(static_cast<float>(options.head_dim));
  problem.causal = options.causal;
  int64_t rows_q = options.seqlen_q, rows_kv = options.seqlen_kv;
  if (options.packed) rows_q = rows_kv = 0;
  for (int64_t b = 0; b < options.batch; ++b) {
    kernels::SequenceBounds sequence;
    sequence.len_q = options.lens_q.empty() ? rows_q : options.lens_q[b];
    sequence.len_kv = options.lens_kv.empty() ? rows_kv : options.lens_kv[b];
    sequence.whole_len_q = sequence.len_q;
    sequence.diagonal_shift = sequence.len_kv - sequence.len_q;
    if (options.packed) {
      sequence.q_begin = rows_q;
      sequence.kv_begin = rows_kv;
      rows_q += sequence.len_q;
      rows_kv += sequence.len_kv;
    }
    problem.sequences.push_back(sequence);
  }
  problem.rows_q = rows_q;
  SetStrides(options, rows_q, options.num_q_heads, &problem.q);
  SetStrides(options, rows_kv, options.num_kv_heads, &problem.k);
  SetStrides(options, rows_kv, options.num_kv_heads, &problem.v);
  SetStrides(options, rows_q, options.num_q_heads, &problem.out);
  problem.lse_head_stride = rows_q;
  problem.lse_batch_stride = options.packed ? 0 : rows_q * options.num_q_heads;

  const int64_t entries = options.packed ? 1 : options.batch;
  const int64_t element = kernels::SizeOf(options.dtype);
  const int64_t q_bytes =
      entries * rows_q * options.num_q_heads * options.head_dim * element;
  const int64_t kv_bytes =
      entries * rows_kv * options.num_kv_heads * options.head_dim * element;
  request->k_offset = AlignUp256(q_bytes);
  request->v_offset = request->k_offset + AlignUp256(kv_bytes);
  request->input_bytes = request->v_offset + kv_bytes;
  request->output_bytes = q_bytes;
  request->lse_offset = AlignUp256(q_bytes);
  request->lse_bytes = entries * rows_q * options.num_q_heads * 4;
  request->flops = kernels::ForwardFlops(problem);
  request->priority = options.priority;
  request->ordering_key = options.ordering_key;
  return request;
}

// Element i of a tensor whose values are all different and in [-1, 1).
inline float ValueOf(uint64_t seed, int64_t i) {
  uint64_t x = seed * 0x9e3779b97f4a7c15u + static_cast<uint64_t>(i);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
}

// Writes q, k and v of a request into its input block.
inline void FillInput(const server::ValidatedRequest& request, uint64_t seed,
                      std::byte* input) {
  const kernels::DataType dtype = request.problem.dtype;
  const int64_t elements = request.input_bytes / kernels::SizeOf(dtype);
  for (int64_t i = 0; i < elements; ++i) {
    kernels::StoreFromFloat(input, dtype, i, ValueOf(seed, i));
  }
}

}  // namespace attendant::testing
