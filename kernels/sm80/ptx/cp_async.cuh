// cp.async: asynchronous copies from global to shared memory (PTX ISA,
// "Data Movement and Conversion Instructions: cp.async").
#pragma once

#include <cstdint>

namespace attendant::kernels::sm80::ptx {

// A pointer into shared memory as the 32-bit address that PTX wants.
__device__ __forceinline__ uint32_t SharedAddress(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes; `global` is aligned to 16. Passes L1 by.
__device__ __forceinline__ void cp_async_16(uint32_t shared,
                                            const void* global) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(
                   shared),
               "l"(global)
               : "memory");
}

// Copies the first `valid` (0..16) bytes and zeroes the rest of 16. `global` is
// aligned to 16 and not read if valid is 0. Some ten instructions longer
// than the form above.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global,
                                            int valid) {
  asm volatile(
      "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared),
      "l"(global), "r"(valid)
      : "memory");
}

// As cp_async_16 for 8 and 4 bytes; `global` is aligned to the size.
__device__ __forceinline__ void cp_async_8(uint32_t shared, const void* global,
                                           int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(shared),
               "l"(global), "r"(valid)
               : "memory");
}
__device__ __forceinline__ void cp_async_4(uint32_t shared, const void* global,
                                           int valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared),
               "l"(global), "r"(valid)
               : "memory");
}

// Closes a group of this thread's copies; a group may be empty.
__device__ __forceinline__ void cp_async_commit_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most `kPending` of this thread's groups are still under way.
// Says nothing of other threads' copies: a barrier must follow.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace attendant::kernels::sm80::ptx
