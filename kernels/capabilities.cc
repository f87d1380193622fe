// The one table: which kernel runs what. Best first.
#include "kernels/attention.h"
#include "kernels/cpu/cpu_attention.h"
#ifdef ATTENDANT_WITH_CUDA
#include "kernels/sm80/sm80_attention.h"
#include "kernels/sm90/sm90_attention.h"
#endif

namespace attendant::kernels {
namespace {

[[maybe_unused]] constexpr int kNewest = 999;  // GPU rows only

constexpr KernelEntry kKernels[] = {
#ifdef ATTENDANT_WITH_CUDA
    // Hopper: wgmma and TMA. Masks stay with sm80.
    {.capability = {.kernel = "sm90",
                    .op = "forward",
                    .min_compute_capability = 90,
                    .max_compute_capability = 90,
                    .fp32 = false,
                    .fp16 = true,
                    .bf16 = true,
                    .max_head_dim = 256,
                    .boolean_mask = false,
                    .additive_mask = false,
                    .alibi = true,
                    .softcap = true,
                    .sinks = true,
                    .window = true},
     .why_not = sm90::WhyNot,
     .plan = sm90::Plan},
    // Every GPU from Ampere on.
    {.capability = {.kernel = "sm80",
                    .op = "forward",
                    .min_compute_capability = 80,
                    .max_compute_capability = kNewest,
                    .fp32 = false,
                    .fp16 = true,
                    .bf16 = true,
                    .max_head_dim = 256,
                    .boolean_mask = true,
                    .additive_mask = true,
                    .alibi = true,
                    .softcap = true,
                    .sinks = true,
                    .window = true},
     .why_not = sm80::WhyNot,
     .plan = sm80::Plan},
#endif
    {.capability = {.kernel = "cpu",
                    .op = "forward",
                    .min_compute_capability = 0,
                    .max_compute_capability = 0,
                    .fp32 = true,
                    .fp16 = true,
                    .bf16 = true,
                    .max_head_dim = 256,
                    .boolean_mask = true,
                    .additive_mask = true,
                    .alibi = true,
                    .softcap = true,
                    .sinks = true,
                    .window = true},
     .why_not = nullptr,
     .plan = cpu::Plan},
};

}  // namespace

std::span<const KernelEntry> Kernels() { return kKernels; }

}  // namespace attendant::kernels
