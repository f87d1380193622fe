// Kernels of one stream that overlap. PTX ISA 9.7.13.14 (griddepcontrol).
#pragma once

namespace attendant::kernels::sm90::ptx {

// Once every block has called this or ended, the next kernel's blocks may start
// where there is room, if it was launched to overlap. Orders no memory.
__device__ __forceinline__ void grid_launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Blocks until the kernel before has ended; what it wrote is then seen.
__device__ __forceinline__ void grid_wait_for_previous() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace attendant::kernels::sm90::ptx
