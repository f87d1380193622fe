// Launch of one decode class: instantiated in decode_*.cu.
#pragma once

#include "kernels/sm90/decode_launchers.h"
#include "kernels/sm90/decode_split_kv.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape, typename Element>
cudaError_t LaunchDecodeShape(const DecodeParams& params, int combine_strands,
                              cudaStream_t stream) {
  constexpr int kBytes = sizeof(DecodeStorage<Shape>);
  auto* kernel = DecodeKernel<Shape, Element>;
  cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<params.num_items, Shape::kThreads, kBytes, stream>>>(params);
  error = cudaGetLastError();
  if (error != cudaSuccess || combine_strands == 0) return error;
  DecodeCombineKernel<Shape, Element>
      <<<combine_strands*(Shape::kTileQ / kCombineRows), kCombineThreads, 0,
         stream>>>(params);
  return cudaGetLastError();
}

template <typename Narrow, typename Wide, typename Element>
cudaError_t LaunchDecode(const DecodeParams& params, bool wide,
                         int combine_strands, cudaStream_t stream) {
  return wide
             ? LaunchDecodeShape<Wide, Element>(params, combine_strands, stream)
             : LaunchDecodeShape<Narrow, Element>(params, combine_strands,
                                                  stream);
}

}  // namespace attendant::kernels::sm90
