// Compiled once for each instruction set: Highway includes this file again and
// again through foreach_target.h, each time with another HWY_NAMESPACE.
#include "kernels/cpu/simd_kernels.h"

#include "kernels/cpu/instruction_set.h"

// SSSE3 alone is not worth its code; scalable vectors cannot stand in arrays.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd_kernels.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
#include "kernels/cpu/convert-inl.h"
#include "kernels/cpu/decode-inl.h"
#include "kernels/cpu/decode_heads-inl.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {

void ExpArray(const float* x, int64_t count, float* y) {
  const TileTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    hn::StoreU(Exp(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

void TanhArray(const float* x, int64_t count, float* y) {
  const TileTag d;
  const int64_t lanes = hn::Lanes(d);
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    hn::StoreU(Tanh(d, hn::LoadU(d, x + i)), d, y + i);
  }
}

SimdKernels GetSimdKernels() {
  const TileKernels tile = {
      .lanes = static_cast<int>(hn::Lanes(TileTag())),
      .key_step = kUnroll,
      .dim_step = 1,
      .panel = kUnroll,
      .bf16_operands = false,
      .begin = nullptr,
      .end = nullptr,
      .scores = Scores,
      .mask = Mask,
      .softmax = Softmax,
      .values = Values,
      .pack_values = PackValues,
  };
  const DecodeKernels decode = {.begin = nullptr,
                                .end = nullptr,
                                .scores = DecodeScores,
                                .mask = DecodeMask,
                                .softmax = DecodeSoftmax,
                                .values = DecodeValues};
  return {
      .name = hwy::TargetName(HWY_TARGET),
      .tile_fp32 = tile,
      .tile_bf16 = tile,
      .decode = decode,
      .decode_bf16 = decode,
      .to_float = ToFloat,
      .from_float = FromFloat,
      .transpose = Transpose,
      .exp = ExpArray,
      .tanh = TanhArray,
  };
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attendant::kernels::cpu {

HWY_EXPORT(GetSimdKernels);

std::vector<SimdKernels> HighwayKernels() {
  std::vector<SimdKernels> all;
  for (int64_t left = hwy::SupportedTargets() & HWY_TARGETS; left != 0;
       left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    all.push_back(HWY_DYNAMIC_DISPATCH(GetSimdKernels)());
  }
  hwy::SetSupportedTargetsForTest(0);
  return all;
}

}  // namespace attendant::kernels::cpu
#endif  // HWY_ONCE
