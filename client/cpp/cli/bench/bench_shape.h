// Shapes as a command line writes them, and tensors of such shapes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/cpp/attend_args.h"
#include "client/cpp/tensor.h"

namespace attendant::client::cli {

struct BenchShape {
  int64_t batch = 1;
  int64_t seqlen_q = 0;
  int64_t seqlen_k = 0;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t head_dim_v = 0;
};

// Letters with a number each: b batch [1], s both lengths, q and k one of them,
// h heads, g KV heads [h], d head_dim, v head_dim_v [d]; "s8192h16d128",
// "b8q1k4096h64g8d128". INVALID_ARGUMENT names --shapes and the text.
absl::StatusOr<BenchShape> ParseShape(const std::string& text);
// The shortest text that ParseShape reads as this.
std::string ShapeText(const BenchShape& shape);

int64_t InputBytes(const BenchShape& shape, DataType dtype);

struct BenchOptions {
  Layout layout = Layout::kBSHD;
  DataType dtype = DataType::kFloat16;
  bool causal = false;
  bool return_lse = false;
};

// A request of random normal tensors, and a place for the answer. Move-only.
struct BenchRequest {
  AttendArgs args;
  std::vector<std::unique_ptr<std::byte[]>> memory;  // shared by no one
};
absl::StatusOr<BenchRequest> MakeBenchRequest(const BenchShape& shape,
                                              const BenchOptions& options);

}  // namespace attendant::client::cli
