// Launch of one decode class: instantiated in decode_*.cu.
#pragma once

#include "kernels/sm90/decode_combine.cuh"
#include "kernels/sm90/decode_launchers.h"
#include "kernels/sm90/decode_split_kv.cuh"

namespace attendant::kernels::sm90 {

template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchDecodeShape(const DecodeParams& params, int combine_strands,
                              cudaStream_t stream) {
  constexpr int kBytes = sizeof(DecodeStorage<Shape>);
  const auto kernel = DecodeKernel<Shape, Element, kGrouped>;
  cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  // Two blocks fit only if shared memory gets all that it can have.
  error = cudaFuncSetAttribute(kernel,
                               cudaFuncAttributePreferredSharedMemoryCarveout,
                               cudaSharedmemCarveoutMaxShared);
  if (error != cudaSuccess) return error;
  kernel<<<params.num_items, Shape::kThreads, kBytes, stream>>>(params);
  error = cudaGetLastError();
  if (error != cudaSuccess || combine_strands == 0) return error;
  DecodeCombineKernel<Shape, Element, kGrouped>
      <<<combine_strands*(Shape::kTileQ / kCombineRows), kCombineThreads, 0,
         stream>>>(params);
  return cudaGetLastError();
}

template <typename Narrow, typename Wide, typename Element>
cudaError_t LaunchDecode(const DecodeParams& params, bool wide,
                         int combine_strands, cudaStream_t stream) {
  const bool grouped = params.global_maps != nullptr;
  const auto launch =
      wide ? (grouped ? LaunchDecodeShape<Wide, Element, true>
                      : LaunchDecodeShape<Wide, Element, false>)
           : (grouped ? LaunchDecodeShape<Narrow, Element, true>
                      : LaunchDecodeShape<Narrow, Element, false>);
  return launch(params, combine_strands, stream);
}

}  // namespace attendant::kernels::sm90
