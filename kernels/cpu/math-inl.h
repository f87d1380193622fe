// exp and tanh on vectors. Included once for each instruction set.
#if defined(ATTENDANT_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTENDANT_KERNELS_CPU_MATH_INL_H_
#undef ATTENDANT_KERNELS_CPU_MATH_INL_H_
#else
#define ATTENDANT_KERNELS_CPU_MATH_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace attendant::kernels::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The larger of x and a finite bound; NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V AtLeast(D d, float bound, V x) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR || \
    HWY_TARGET == HWY_NEON
  // Their Max may drop a NaN (NEON's is vmaxnm).
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, bound)), hn::Set(d, bound), x);
#else
  // x second: x86 returns the second operand where one is NaN.
  return hn::Max(hn::Set(d, bound), x);
#endif
}

// e^x for x up to 88: within 2 units in the last place of normal results;
// exactly 1 for 0; below ln 2^-126.5 exactly 0; NaN stays NaN.
//
// x = n ln 2 + f with |f| <= ln 2 / 2; e^f is a minimax polynomial (relative
// error 1.7e-8), 2^n is built in the exponent field. Adding 1.5 * 2^23 rounds
// to an integer and leaves it, with the bias of 127, in the low bits; at the
// clamp, -127 ln 2, the field is 0, and so is the product.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V magic = hn::Set(d, 12582912.0f + 127.0f);
  x = AtLeast(d, -88.0296919f, x);
  const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), magic);
  const V n = hn::Sub(shifted, magic);
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_NEON
  const V f = hn::NegMulAdd(n, hn::Set(d, 0.693147181f), x);
#else
  // Without a fused multiply-add: ln 2 in two parts, the first product exact.
  const V rest = hn::Sub(x, hn::Mul(n, hn::Set(d, 0.693359375f)));
  const V f = hn::Add(rest, hn::Mul(n, hn::Set(d, 2.12194440e-4f)));
#endif
  V p = hn::MulAdd(hn::Set(d, 0.0013843644f), f, hn::Set(d, 0.008374163f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.041668f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.16666432f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.49999994f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const V scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, shifted)));
  return hn::Mul(p, scale);
}

// tanh within a few units in the last place, small arguments too: an odd
// polynomial up to 0.625 (relative error 4.4e-9), else through exp.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Tanh(D d, V x) {
  const V magnitude = hn::Abs(x);
  const V z = hn::Mul(x, x);
  V p = hn::MulAdd(hn::Set(d, -0.0057049864f), z, hn::Set(d, 0.020639086f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.053739715f));
  p = hn::MulAdd(p, z, hn::Set(d, 0.13331442f));
  p = hn::MulAdd(p, z, hn::Set(d, -0.3333328f));
  const V small = hn::MulAdd(hn::Mul(x, z), p, x);
  const V one = hn::Set(d, 1.0f);
  const V e = Exp(d, hn::Mul(magnitude, hn::Set(d, -2.0f)));
  const V large = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.625f)), small,
                        hn::CopySign(large, x));
}

}  // namespace HWY_NAMESPACE
}  // namespace attendant::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
