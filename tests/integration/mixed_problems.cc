#include "tests/integration/mixed_problems.h"

#include "tests/integration/test_backend.h"

namespace attendant::testing {
namespace {

using kernels::DataType;
using kernels::MaskKind;

constexpr DataType kFp32 = DataType::kFloat32;
constexpr DataType kFp16 = DataType::kFloat16;
constexpr DataType kBf16 = DataType::kBFloat16;

using Options = std::vector<ProblemOptions>;

void AddLayouts(Options* all) {
  for (const DataType dtype : {kFp32, kFp16, kBf16}) {
    for (const Layout layout :
         {Layout::kBshd, Layout::kBhsd, Layout::kPackedQkv}) {
      ProblemOptions& dense = all->emplace_back();
      dense.dtype = dtype;
      dense.layout = layout;
      dense.batch = 2;
      dense.num_q_heads = 4;
      dense.num_kv_heads = 2;
      dense.head_dim = 40;
      dense.seqlen_q = dense.seqlen_kv = 67;
      dense.causal = true;
    }
    ProblemOptions& ragged = all->emplace_back();
    ragged.dtype = dtype;
    ragged.layout = Layout::kThd;
    ragged.batch = 4;
    ragged.num_q_heads = 6;
    ragged.num_kv_heads = 2;
    ragged.head_dim = 64;
    ragged.lens_q = {1, 130, 0, 33};
    ragged.lens_kv = {70, 130, 5, 0};
    ragged.causal = ragged.bottom_right = true;
  }
}

// NaN fills all that no sequence owns.
void AddPadding(Options* all) {
  ProblemOptions& right = all->emplace_back();
  right.dtype = kBf16;
  right.batch = 3;
  right.num_q_heads = right.num_kv_heads = 2;
  right.head_dim = 32;
  right.seqlen_q = 50;
  right.seqlen_kv = 60;
  right.lens_q = {50, 7, 0};
  right.lens_kv = {33, 60, 12};

  ProblemOptions& left = all->emplace_back();
  left.layout = Layout::kBhsd;
  left.batch = 2;
  left.num_q_heads = 3;
  left.head_dim = 24;
  left.head_dim_v = 56;
  left.seqlen_q = left.seqlen_kv = 40;
  left.lens_q = {30, 11};
  left.lens_kv = {30, 40};
  left.skips_q = {10, 5};
  left.skips_kv = {10, 0};
  left.causal = true;
  left.row_gap = 8;
  left.head_gap = 16;
}

void AddOptions(Options* all) {
  ProblemOptions base;
  base.batch = 2;
  base.num_q_heads = 4;
  base.num_kv_heads = 2;
  base.head_dim = 48;
  base.seqlen_q = 37;
  base.seqlen_kv = 90;
  base.bottom_right = true;
  const auto add = [&](auto change) {
    ProblemOptions options = base;
    change(options);
    options.seed = all->size() + 1;
    all->push_back(options);
  };
  add([](auto& o) { o.window_left = 20, o.window_right = 3; });
  add([](auto& o) { o.causal = true, o.window_left = 0; });
  add([](auto& o) { o.softcap = 5, o.softmax_scale = -0.3f; });
  add([](auto& o) { o.softmax_scale = 0; });
  add([](auto& o) { o.alibi = true, o.alibi_per_batch = true; });
  add([](auto& o) { o.sinks = true, o.dtype = kFp16; });
  add([](auto& o) { o.mask = MaskKind::kBoolBytes, o.mask_per_head = true; });
  add([](auto& o) { o.mask = MaskKind::kBoolBits, o.mask_per_batch = true; });
  add([](auto& o) { o.mask = MaskKind::kAdditive, o.lse = false; });
  add([](auto& o) {
    o.dtype = kBf16, o.output_dtype = kFp32, o.mask = MaskKind::kAdditive,
    o.mask_dtype = kBf16;
  });
  add([](auto& o) { o.seqlen_kv = 0; });                     // sees nothing
  add([](auto& o) { o.seqlen_q = 0; });                      // no output
  add([](auto& o) { o.seqlen_q = 1, o.seqlen_kv = 1500; });  // decode
  add([](auto& o) { o.head_dim = 256, o.head_dim_v = 1; });
}

}  // namespace

std::vector<ProblemOptions> MixedProblems() {
  Options all;
  AddLayouts(&all);
  AddPadding(&all);
  AddOptions(&all);
  if (!TestsOnCuda()) return all;
  for (ProblemOptions& options : all) {
    if (options.dtype == kFp32) options.dtype = kBf16;
  }
  return all;
}

}  // namespace attendant::testing
