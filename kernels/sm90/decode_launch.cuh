// Launch of one decode class: instantiated in decode_*.cu.
#pragma once

#include "kernels/sm90/decode_combine.cuh"
#include "kernels/sm90/decode_few.cuh"
#include "kernels/sm90/decode_launchers.h"
#include "kernels/sm90/decode_split_kv.cuh"

namespace attendant::kernels::sm90 {

template <typename Kernel>
cudaError_t TakeSharedMemory(Kernel kernel, int bytes) {
  const cudaError_t error = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error != cudaSuccess) return error;
  // Two blocks fit only if shared memory gets all that it can have.
  return cudaFuncSetAttribute(kernel,
                              cudaFuncAttributePreferredSharedMemoryCarveout,
                              cudaSharedmemCarveoutMaxShared);
}

template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchDecodeShape(const DecodeParams& params,
                              const DecodeLaunch& launch) {
  constexpr int kBytes = sizeof(DecodeStorage<Shape>);
  const auto kernel = launch.modifies_scores
                          ? DecodeKernel<Shape, Element, kGrouped, true>
                          : DecodeKernel<Shape, Element, kGrouped, false>;
  cudaError_t error = TakeSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<launch.blocks, Shape::kThreads, kBytes, launch.stream>>>(params);
  error = cudaGetLastError();
  if (error != cudaSuccess || launch.combine_strands == 0) return error;
  const auto combine = DecodeCombineKernel<Shape, Element, kGrouped>;
  // The same split of shared memory and L1, so that a multiprocessor need not
  // stand idle to change it.
  error = TakeSharedMemory(combine, sizeof(CombineStorage));
  if (error != cudaSuccess) return error;
  // Its blocks start while the last of the kernel above still work.
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.combine_strands * params.combine_blocks;
  config.blockDim = kCombineThreads;
  config.dynamicSmemBytes = sizeof(CombineStorage);
  config.stream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, combine, params);
}

template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchDecodeFew(const DecodeParams& params,
                            const DecodeLaunch& launch) {
  constexpr int kBytes = sizeof(DecodeFewStorage<Shape>);
  const auto kernel = DecodeFewKernel<Shape, Element, kGrouped>;
  const cudaError_t error = TakeSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  kernel<<<launch.blocks, Shape::kThreads, kBytes, launch.stream>>>(params);
  return cudaGetLastError();
}

template <typename Few, typename Narrow, typename Wide, typename Element>
cudaError_t LaunchDecode(const DecodeParams& params,
                         const DecodeLaunch& launch) {
  const bool grouped = params.global_maps != nullptr;
  switch (launch.width) {
    case DecodeWidth::kFew:
      return (grouped ? LaunchDecodeFew<Few, Element, true>
                      : LaunchDecodeFew<Few, Element, false>)(params, launch);
    case DecodeWidth::k64:
      return (grouped
                  ? LaunchDecodeShape<Narrow, Element, true>
                  : LaunchDecodeShape<Narrow, Element, false>)(params, launch);
    case DecodeWidth::k128:
      return (grouped
                  ? LaunchDecodeShape<Wide, Element, true>
                  : LaunchDecodeShape<Wide, Element, false>)(params, launch);
  }
  return cudaErrorInvalidValue;
}

}  // namespace attendant::kernels::sm90
