// A small problem whose answer is known by hand, sent through the RPC in any
// dtype and layout: q, k and v are given as functions, answers read as floats.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attendant/v1/attention.pb.h"
#include "kernels/base/data_type.h"

namespace attendant::testing {

struct ProbeSizes {
  int64_t batch = 1, len_q = 1, len_k = 1;
  int64_t q_heads = 1, kv_heads = 1;
  int64_t head_dim = 8, head_dim_v = 1;
};

// Value of batch entry b, row i, head h, column d.
using ProbeValue = std::function<float(int64_t, int64_t, int64_t, int64_t)>;

inline float Zero(int64_t, int64_t, int64_t, int64_t) { return 0; }
// The count probe: with q = 0 an answer is the mean of the visible keys' j + 1.
inline float RowPlusOne(int64_t, int64_t i, int64_t, int64_t) {
  return static_cast<float>(i + 1);
}

// A request with LSE; THD gives every batch entry a sequence of its own.
v1::AttendRequest ProbeRequest(kernels::DataType dtype, v1::Layout layout,
                               const ProbeSizes& sizes, const ProbeValue& q,
                               const ProbeValue& k, const ProbeValue& v);

// [batch][row][head][column], whatever the layout; [batch][head][row].
struct ProbeAnswer {
  std::vector<float> out;
  std::vector<float> lse;
};
ProbeAnswer ReadAnswer(const v1::AttendResponse& reply,
                       const ProbeSizes& sizes);

}  // namespace attendant::testing
