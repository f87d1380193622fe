// Register shares of a warpgroup and warp-uniform values. PTX ISA 9.7.19.5
// (setmaxnreg), 9.7.13.11 (redux.sync).
#pragma once

#include <cstdint>

namespace attendant::kernels::sm90::ptx {

// All warps of the warpgroup. The kernel needs a register cap at entry
// (__launch_bounds__ with a minimum of one block).
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// A value that all lanes hold alike, moved where the assembler knows it to be
// uniform: descriptors and loop bounds then stay in uniform registers.
__device__ __forceinline__ int uniform(int value) {
  return __reduce_max_sync(0xffffffffu, value);
}
__device__ __forceinline__ uint32_t uniform(uint32_t value) {
  return __reduce_max_sync(0xffffffffu, value);
}

}  // namespace attendant::kernels::sm90::ptx
