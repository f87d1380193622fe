// The launch wrapper that each prefill_*.cu instantiates.
#pragma once

#include "kernels/sm90/launchers.h"
#include "kernels/sm90/prefill.cuh"
#include "kernels/sm90/tile_table.h"

namespace attendant::kernels::sm90 {

template <typename Shape, typename Element, bool kScoreMod>
cudaError_t LaunchKernel(const PrefillParams& params, int num_blocks,
                         cudaStream_t stream) {
  const auto kernel = PrefillKernel<Shape, Element, kScoreMod>;
  constexpr int kBytes = sizeof(SharedStorage<Shape>);
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<num_blocks, Shape::kThreads, kBytes, stream>>>(params);
  return cudaGetLastError();
}

template <typename Plain, typename ScoreMod, typename Element>
cudaError_t LaunchPrefill(const PrefillParams& params, bool score_mod,
                          int num_blocks, cudaStream_t stream) {
  return score_mod
             ? LaunchKernel<ScoreMod, Element, true>(params, num_blocks, stream)
             : LaunchKernel<Plain, Element, false>(params, num_blocks, stream);
}

}  // namespace attendant::kernels::sm90
