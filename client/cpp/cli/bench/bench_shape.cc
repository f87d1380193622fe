#include "client/cpp/cli/bench/bench_shape.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "client/cpp/cli/equal_sequences.h"
#include "client/cpp/cli/kernel_type.h"
#include "client/cpp/client_error.h"
#include "kernels/base/data_type.h"

namespace attendant::client::cli {
namespace {

// Normal numbers of one tile are drawn, the rest repeats them: random enough
// for a GPU's clocks, and a thousandth of the time.
constexpr int64_t kDrawn = int64_t{1} << 16;

absl::Status BadShape(const std::string& text) {
  return InvalidField("--shapes", text,
                      "letters b s q k h g d v with a number each, such as "
                      "s8192h16d128");
}

void FillRandom(uint64_t seed, DataType dtype, int64_t elements,
                std::byte* data) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  const int64_t drawn = std::min(elements, kDrawn);
  for (int64_t e = 0; e < drawn; ++e) {
    kernels::StoreFromFloat(data, ToKernelType(dtype), e, normal(engine));
  }
  const int64_t tile = NumBytes(dtype, drawn), all = NumBytes(dtype, elements);
  for (int64_t done = tile; done < all; done += tile) {
    std::memcpy(data + done, data, std::min(tile, all - done));
  }
}

absl::StatusOr<std::byte*> Allocate(int64_t bytes, BenchRequest* request) {
  // Every page is touched here, not in the first timed call.
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  std::unique_ptr<std::byte[]> memory(new (std::nothrow) std::byte[size]());
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the system gives no ", bytes, " bytes for a tensor"));
  }
  request->memory.push_back(std::move(memory));
  return request->memory.back().get();
}

// No tensor of it is larger than this: what is computed of it fits 64 bits.
constexpr int64_t kMostElements = int64_t{1} << 40;

bool IsBounded(const BenchShape& s) {
  const auto fits = [&](int64_t seqlen, int64_t heads, int64_t dim) {
    int64_t elements = s.batch;
    for (const int64_t size : {seqlen, heads, dim}) {
      if (__builtin_mul_overflow(elements, size, &elements)) return false;
    }
    return elements <= kMostElements;
  };
  return fits(s.seqlen_q, s.num_q_heads, s.head_dim) &&
         fits(s.seqlen_q, s.num_q_heads, s.head_dim_v) &&
         fits(s.seqlen_k, s.num_kv_heads, s.head_dim) &&
         fits(s.seqlen_k, s.num_kv_heads, s.head_dim_v) &&
         fits(s.seqlen_q, s.num_q_heads, 1);
}

}  // namespace

absl::StatusOr<BenchShape> ParseShape(const std::string& text) {
  std::map<char, int64_t> sizes;
  for (size_t at = 0; at < text.size();) {
    const char letter = text[at++];
    const size_t begin = at;
    while (at < text.size() && absl::ascii_isdigit(text[at])) ++at;
    int64_t size;
    if (std::strchr("bsqkhgdv", letter) == nullptr ||
        !absl::SimpleAtoi(text.substr(begin, at - begin), &size) ||
        size >= int64_t{1} << 31 || !sizes.emplace(letter, size).second) {
      return BadShape(text);
    }
  }
  const auto size_of = [&](char letter, int64_t otherwise) {
    return sizes.contains(letter) ? sizes[letter] : otherwise;
  };
  const bool lengths =
      sizes.contains('s') || (sizes.contains('q') && sizes.contains('k'));
  if (!lengths || !sizes.contains('h') || !sizes.contains('d')) {
    return BadShape(text);
  }
  BenchShape shape;
  shape.batch = size_of('b', 1);
  shape.seqlen_q = size_of('q', size_of('s', 0));
  shape.seqlen_k = size_of('k', size_of('s', 0));
  shape.num_q_heads = size_of('h', 0);
  shape.num_kv_heads = size_of('g', shape.num_q_heads);
  shape.head_dim = size_of('d', 0);
  shape.head_dim_v = size_of('v', shape.head_dim);
  if (!IsBounded(shape)) {
    return InvalidField("--shapes", text, "of at most 2^40 elements a tensor");
  }
  return shape;
}

std::string ShapeText(const BenchShape& shape) {
  std::string text;
  if (shape.batch != 1) absl::StrAppend(&text, "b", shape.batch);
  if (shape.seqlen_q == shape.seqlen_k) {
    absl::StrAppend(&text, "s", shape.seqlen_q);
  } else {
    absl::StrAppend(&text, "q", shape.seqlen_q, "k", shape.seqlen_k);
  }
  absl::StrAppend(&text, "h", shape.num_q_heads);
  if (shape.num_kv_heads != shape.num_q_heads) {
    absl::StrAppend(&text, "g", shape.num_kv_heads);
  }
  absl::StrAppend(&text, "d", shape.head_dim);
  if (shape.head_dim_v != shape.head_dim) {
    absl::StrAppend(&text, "v", shape.head_dim_v);
  }
  return text;
}

int64_t InputBytes(const BenchShape& s, DataType dtype) {
  return NumBytes(dtype, s.batch * (s.seqlen_q * s.num_q_heads * s.head_dim +
                                    s.seqlen_k * s.num_kv_heads *
                                        (s.head_dim + s.head_dim_v)));
}

absl::StatusOr<BenchRequest> MakeBenchRequest(const BenchShape& s,
                                              const BenchOptions& options) {
  BenchRequest request;
  AttendArgs& args = request.args;
  args.layout = options.layout;
  args.causal = options.causal;
  args.return_lse = options.return_lse;
  if (options.causal && s.seqlen_q != s.seqlen_k) {
    args.alignment = CausalAlignment::kBottomRight;
  }
  const auto sizes = [&](int64_t seqlen, int64_t heads, int64_t dim) {
    return ShapeOf(options.layout, s.batch, seqlen, heads, dim);
  };
  const struct {
    TensorView* view;
    std::vector<int64_t> shape;
  } tensors[] = {{&args.q, sizes(s.seqlen_q, s.num_q_heads, s.head_dim)},
                 {&args.k, sizes(s.seqlen_k, s.num_kv_heads, s.head_dim)},
                 {&args.v, sizes(s.seqlen_k, s.num_kv_heads, s.head_dim_v)}};
  uint64_t seed = 1;
  for (const auto& [view, shape] : tensors) {
    const absl::StatusOr<int64_t> elements = NumElements(shape);
    if (!elements.ok()) return elements.status();
    const absl::StatusOr<std::byte*> data =
        Allocate(NumBytes(options.dtype, *elements), &request);
    if (!data.ok()) return data.status();
    FillRandom(seed++, options.dtype, *elements, *data);
    *view = TensorView{*data, options.dtype, shape, {}};
  }
  const absl::StatusOr<int64_t> out_elements =
      NumElements(sizes(s.seqlen_q, s.num_q_heads, s.head_dim_v));
  if (!out_elements.ok()) return out_elements.status();
  const int64_t out_bytes = NumBytes(options.dtype, *out_elements);
  const absl::StatusOr<std::byte*> out = Allocate(out_bytes, &request);
  if (!out.ok()) return out.status();
  args.out = {*out, static_cast<size_t>(out_bytes)};
  if (options.return_lse) {
    const int64_t bytes = s.batch * s.num_q_heads * s.seqlen_q * 4;
    const absl::StatusOr<std::byte*> lse = Allocate(bytes, &request);
    if (!lse.ok()) return lse.status();
    args.lse = {*lse, static_cast<size_t>(bytes)};
  }
  if (options.layout == Layout::kTHD) {
    if (s.batch * std::max(s.seqlen_q, s.seqlen_k) > INT32_MAX) {
      return InvalidField("--shapes", ShapeText(s),
                          "of at most 2^31 - 1 rows in layout thd");
    }
    args.cu_seqlens_q = EqualSequences(s.batch, s.seqlen_q);
    args.cu_seqlens_k = EqualSequences(s.batch, s.seqlen_k);
  }
  return request;
}

}  // namespace attendant::client::cli
