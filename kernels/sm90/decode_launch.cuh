// Launch of one decode class: instantiated in decode_*.cu.
#pragma once

#include <algorithm>
#include <vector>

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

// Whether all of the launch's clusters run at the same time; else items would
// wait, where a queue hands them to blocks as these become free. Asked once.
template <typename Kernel>
cudaError_t ClustersFit(Kernel kernel, const cudaLaunchConfig_t& config,
                        int cluster_size, bool* fit) {
  struct Asked {
    Kernel kernel;
    int device, cluster_size;
    size_t bytes;
    int clusters;
  };
  thread_local std::vector<Asked> known;
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  const int clusters = static_cast<int>(config.gridDim.x) / cluster_size;
  for (const Asked& asked : known) {
    if (asked.kernel == kernel && asked.device == device &&
        asked.cluster_size == cluster_size &&
        asked.bytes == config.dynamicSmemBytes) {
      *fit = clusters <= asked.clusters;
      return cudaSuccess;
    }
  }
  Asked asked = {kernel, device, cluster_size, config.dynamicSmemBytes, 0};
  error = cudaOccupancyMaxActiveClusters(&asked.clusters, kernel, &config);
  if (error != cudaSuccess) return error;
  known.push_back(asked);
  *fit = clusters <= asked.clusters;
  return cudaSuccess;
}

// The second kernel.
template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchCombine(const DecodeParams& params,
                          const DecodeLaunch& launch) {
  const auto kernel = DecodeCombineKernel<Shape, Element, kGrouped>;
  constexpr int kBytes = sizeof(CombineStorage<Shape::kHeadDim>);
  // The same split of shared memory and L1, so that a multiprocessor need not
  // stand idle to change it.
  const cudaError_t error = TakeSharedMemory(kernel, kBytes);
  if (error != cudaSuccess) return error;
  // Its blocks start while the last of the kernel before still work.
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.combine_strands * params.combine_blocks;
  config.blockDim = kCombineThreads;
  config.dynamicSmemBytes = kBytes;
  config.stream = launch.stream;
  config.attrs = &overlap;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, params);
}

template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchDecodeShape(DecodeParams params, const DecodeLaunch& launch) {
  const bool may_merge = MayMerge<Shape, false>() && !launch.modifies_scores;
  const int cluster_size = may_merge ? launch.cluster_size : 1;
  // Blocks of a cluster would share multiprocessors while others stand idle:
  // with more than half of the shared memory they do not.
  constexpr int kBytes = sizeof(DecodeStorage<Shape>);
  constexpr int kBytesAlone = std::max(kBytes, 233472 / 2);
  const int bytes =
      cluster_size > 1 && launch.one_block_per_sm ? kBytesAlone : kBytes;
  const auto kernel = launch.modifies_scores
                          ? DecodeKernel<Shape, Element, kGrouped, true>
                          : DecodeKernel<Shape, Element, kGrouped, false>;
  cudaError_t error = TakeSharedMemory(kernel, kBytesAlone);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = cluster_size;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = launch.blocks;
  config.blockDim = Shape::kThreads;
  config.dynamicSmemBytes = bytes;
  config.stream = launch.stream;
  if (cluster_size > 1) {
    config.attrs = &cluster;
    config.numAttrs = 1;
    bool fit = false;
    error = ClustersFit(kernel, config, cluster_size, &fit);
    if (error != cudaSuccess) return error;
    if (!fit) config.numAttrs = 0;
  }
  const bool is_clustered = config.numAttrs > 0;
  params.cluster_size = is_clustered ? cluster_size : 1;
  params.merge = is_clustered ? DecodeMerge::kInCluster
                 : may_merge && launch.merges_by_arrival
                     ? DecodeMerge::kByArrival
                     : DecodeMerge::kCombineKernel;
  error = cudaLaunchKernelEx(&config, kernel, params);
  if (error != cudaSuccess || launch.combine_strands == 0 ||
      params.merge != DecodeMerge::kCombineKernel) {
    return error;
  }
  return LaunchCombine<Shape, Element, kGrouped>(params, launch);
}

// Tails have a kernel of their own: their code would cost a lone request, whose
// time is that of instructions which run once, half a microsecond of ten.
template <typename Shape, typename Element, bool kGrouped>
cudaError_t LaunchDecodeFew(const DecodeParams& params,
                            const DecodeLaunch& launch) {
  constexpr int kBytes = sizeof(DecodeFewStorage<Shape>);
  auto kernel = DecodeFewKernel<Shape, Element, kGrouped, false>;
  if constexpr (MayHaveTails(Shape::kHeadDim)) {
    if (launch.has_tails) {
      kernel = DecodeFewKernel<Shape, Element, kGrouped, true>;
    }
  }
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
