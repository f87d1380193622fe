// Mask and online softmax of the decode form, one row of S at a time. Included
// once for each instruction set.
#if defined(ATTENDANT_KERNELS_CPU_DECODE_SOFTMAX_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_DECODE_SOFTMAX_INL_H_
#undef ATTENDANT_KERNELS_CPU_DECODE_SOFTMAX_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_DECODE_SOFTMAX_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kernels/cpu/math-inl.h"
#include "kernels/cpu/simd_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using DecodeTag = hn::CappedTag<float, 16>;
using DecodeVec = hn::Vec<DecodeTag>;

void DecodeMask(const DecodeMaskArgs& a) {
  const DecodeTag d;
  const hn::RebindToSigned<DecodeTag> di;
  const int lanes = static_cast<int>(hn::Lanes(d));
  const auto minus_infinity = hn::Set(d, kMinusInfinity);
  const auto cap = hn::Set(d, a.softcap);
  const auto inverse_cap = hn::Set(d, a.softcap > 0 ? 1 / a.softcap : 0.0f);
  const auto lo = hn::Set(di, a.lo);
  const auto hi = hn::Set(di, a.hi);
  for (int n = 0; n < a.num_keys; n += lanes) {
    DecodeVec s = hn::LoadU(d, a.s + n);
    const auto key = hn::Iota(di, n);
    if (a.general) {
      if (a.softcap > 0) {
        s = hn::Mul(cap, Tanh(d, hn::Mul(s, inverse_cap)));
      }
      if (a.slope != 0) {
        const auto distance = hn::Abs(hn::Sub(hn::Set(di, a.diagonal), key));
        s = hn::NegMulAdd(hn::Set(d, a.slope), hn::ConvertTo(d, distance), s);
      }
      if (a.bias != nullptr) {
        const DecodeVec bias = hn::LoadU(d, a.bias + n);
        s = a.bias_is_boolean
                ? hn::IfThenElse(hn::Eq(bias, minus_infinity), bias, s)
                : hn::Add(s, bias);
      }
    }
    const auto hidden = hn::Or(hn::Gt(lo, key), hn::Not(hn::Gt(hi, key)));
    s = hn::IfThenElse(hn::RebindMask(d, hidden), minus_infinity, s);
    hn::StoreU(s, d, a.s + n);
  }
}

void DecodeSoftmax(const DecodeSoftmaxArgs& a) {
  const DecodeTag d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  DecodeVec max = hn::Set(d, kMinusInfinity);
  for (int n = 0; n < a.num_keys; n += lanes) {
    max = hn::Max(max, hn::LoadU(d, a.s + n));
  }
  const float block_max = hn::GetLane(hn::MaxOfLanes(d, max));
  const float new_max = std::max(*a.row_max, block_max);
  const float base = new_max == kMinusInfinity ? 0.0f : new_max;
  const float alpha = hn::GetLane(Exp(d, hn::Set(d, *a.row_max - base)));
  DecodeVec sum = hn::Zero(d);
  for (int n = 0; n < a.num_keys; n += lanes) {
    const DecodeVec p =
        Exp(d, hn::Sub(hn::LoadU(d, a.s + n), hn::Set(d, base)));
    sum = hn::Add(sum, p);
    hn::StoreU(p, d, a.s + n);
  }
  *a.row_max = new_max;
  *a.alpha = alpha;
  *a.row_sum = *a.row_sum * alpha + hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
