// The register-to-matrix maps that wgmma.cuh states, and its descriptors:
// small whole numbers, so that products are exact, against the CPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/wgmma.cuh"

namespace attendant::kernels::sm90::ptx {
namespace {

constexpr int kM = 64;
constexpr int kK = 64;  // SS: one 128-byte row. RS: keys.

__host__ __device__ constexpr int ValueA(int row, int k) {
  return (row * 7 + k * 3) % 11 - 5;
}
__host__ __device__ constexpr int ValueB(int k, int column) {
  return (k * 5 + column * 13) % 9 - 4;
}

// Byte offset of 16-bit element `column` of a row in 128-byte swizzle.
__device__ int SwizzledByte(int row, int column) {
  return row * 128 + (((column / 8) ^ (row % 8)) * 16) + column % 8 * 2;
}

template <typename Element>
__device__ void Put(uint8_t* tile, int row, int column, int value) {
  *reinterpret_cast<Element*>(tile + SwizzledByte(row, column)) =
      static_cast<Element>(static_cast<float>(value));
}

template <int kN>
__device__ void StoreD(const float (&d)[kN / 2], float* out) {
  const int lane = threadIdx.x % 32;
  const int row = 16 * (threadIdx.x / 32) + lane / 4;
  for (int i = 0; i < kN / 2; ++i) {
    const int column = 8 * (i / 4) + 2 * (lane % 4) + i % 2;
    out[(row + 8 * ((i / 2) % 2)) * kN + column] = d[i];
  }
}

// D = A B^T, both K-major in shared memory; B's row n holds column n.
template <int kN, typename Element>
__global__ void __launch_bounds__(128) SsKernel(float* out) {
  __shared__ alignas(1024) uint8_t a[kM * 128];
  __shared__ alignas(1024) uint8_t b[kN * 128];
  for (int i = threadIdx.x; i < kM * kK; i += 128) {
    Put<Element>(a, i / kK, i % kK, ValueA(i / kK, i % kK));
  }
  for (int i = threadIdx.x; i < kN * kK; i += 128) {
    Put<Element>(b, i / kK, i % kK, ValueB(i % kK, i / kK));
  }
  fence_proxy_async();
  __syncthreads();
  float d[kN / 2];
  const uint64_t a_descriptor = wgmma_descriptor(smem_address(a), 16);
  const uint64_t b_descriptor = wgmma_descriptor(smem_address(b), 16);
  wgmma_fence();
  WgmmaSs<kN, Element>::template issue<false>(d, a_descriptor, b_descriptor);
#pragma unroll
  for (int step = 1; step < kK / 16; ++step) {
    WgmmaSs<kN, Element>::template issue<true>(d, a_descriptor + 2 * step,
                                               b_descriptor + 2 * step);
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
  StoreD<kN>(d, out);
}

// D = A B: A in registers, B [keys, kN] as stored, boxes of 64 columns.
template <int kN, typename Element>
__global__ void __launch_bounds__(128) RsKernel(float* out) {
  __shared__ alignas(1024) uint8_t b[kN / 64 * kK * 128];
  for (int i = threadIdx.x; i < kN * kK; i += 128) {
    const int key = i / kN;
    const int column = i % kN;
    Put<Element>(b + column / 64 * (kK * 128), key, column % 64,
                 ValueB(key, column));
  }
  fence_proxy_async();
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const int row = 16 * (threadIdx.x / 32) + lane / 4;
  uint32_t a[kK / 4];
  for (int i = 0; i < kK / 4; ++i) {
    const int r = row + 8 * (i % 2);
    const int k = 16 * (i / 4) + 8 * (i / 2 % 2) + 2 * (lane % 4);
    a[i] = pack<Element>(static_cast<float>(ValueA(r, k)),
                         static_cast<float>(ValueA(r, k + 1)));
  }
  float d[kN / 2];
  const uint64_t descriptor = wgmma_descriptor(smem_address(b), kK * 128);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kK / 16; ++step) {
    WgmmaRs<kN, Element>::issue(d, a + 4 * step, descriptor + 128 * step,
                                step == 0 ? 0 : 1);
  }
  wgmma_commit_group();
  wgmma_wait_group<0>();
  StoreD<kN>(d, out);
}

class WgmmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, 0) != cudaSuccess ||
        properties.major != 9) {
      GTEST_SKIP() << "no Hopper GPU";
    }
  }

  static void Check(void (*kernel)(float*), int n) {
    float* device = nullptr;
    const size_t bytes = sizeof(float) * kM * n;
    ASSERT_EQ(cudaMalloc(&device, bytes), cudaSuccess);
    kernel<<<1, 128>>>(device);
    std::vector<float> d(kM * n);
    ASSERT_EQ(cudaMemcpy(d.data(), device, bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
    cudaFree(device);
    for (int row = 0; row < kM; ++row) {
      for (int column = 0; column < n; ++column) {
        int expected = 0;
        for (int k = 0; k < kK; ++k) {
          expected += ValueA(row, k) * ValueB(k, column);
        }
        ASSERT_EQ(d[row * n + column], expected)
            << "n " << n << " row " << row << " column " << column;
      }
    }
  }
};

TEST_F(WgmmaTest, BothFromSharedMemory) {
  Check(SsKernel<80, __nv_bfloat16>, 80);
  Check(SsKernel<112, __nv_bfloat16>, 112);
  Check(SsKernel<128, __nv_bfloat16>, 128);
  Check(SsKernel<80, __half>, 80);
  Check(SsKernel<112, __half>, 112);
  Check(SsKernel<128, __half>, 128);
}

TEST_F(WgmmaTest, LeftFromRegistersRightTransposed) {
  Check(RsKernel<64, __nv_bfloat16>, 64);
  Check(RsKernel<128, __nv_bfloat16>, 128);
  Check(RsKernel<192, __nv_bfloat16>, 192);
  Check(RsKernel<256, __nv_bfloat16>, 256);
  Check(RsKernel<64, __half>, 64);
  Check(RsKernel<128, __half>, 128);
  Check(RsKernel<192, __half>, 192);
  Check(RsKernel<256, __half>, 256);
}

}  // namespace
}  // namespace attendant::kernels::sm90::ptx
