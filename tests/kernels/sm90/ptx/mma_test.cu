// The register-to-matrix maps that mma.cuh states: small whole numbers, so that
// products are exact, against the CPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/sm90/ptx/math.cuh"
#include "kernels/sm90/ptx/mbarrier.cuh"
#include "kernels/sm90/ptx/mma.cuh"

namespace attendant::kernels::sm90::ptx {
namespace {

constexpr int kM = 16;
constexpr int kN = 8;
constexpr int kK = 16;

__host__ __device__ constexpr int ValueA(int row, int k) {
  return (row * 7 + k * 3) % 11 - 5;
}
__host__ __device__ constexpr int ValueB(int k, int column) {
  return (k * 5 + column * 13) % 9 - 4;
}

__device__ void StoreD(const float (&d)[4], float* out) {
  const int lane = threadIdx.x;
  for (int i = 0; i < 4; ++i) {
    out[(lane / 4 + i / 2 * 8) * kN + lane % 4 * 2 + i % 2] = d[i];
  }
}

// A through ldmatrix from its rows, or (kTransposed) from A^T; B by hand from
// the fragment's map, or (kTransposed) from B^T's by movmatrix.
template <typename Element, bool kTransposed>
__global__ void ProductKernel(float* out) {
  __shared__ alignas(16) Element tile[kM * kK];
  const int lane = threadIdx.x;
  for (int i = lane; i < kM * kK; i += 32) {
    const int value =
        kTransposed ? ValueA(i % 16, i / 16) : ValueA(i / 16, i % 16);
    tile[i] = static_cast<Element>(static_cast<float>(value));
  }
  __syncwarp();
  uint32_t a[4];
  uint32_t b[2];
  const int middle = lane / 8 % 2 * 8;
  const int upper = lane / 16 * 8;
  if constexpr (kTransposed) {
    ldmatrix_x4_trans(a, smem_address(&tile[(upper + lane % 8) * 16 + middle]));
    for (int i = 0; i < 2; ++i) {
      const int k = lane / 4 + 8 * i;
      const int column = lane % 4 * 2;
      b[i] = movmatrix_trans(
          pack<Element>(ValueB(k, column), ValueB(k, column + 1)));
    }
  } else {
    ldmatrix_x4(a, smem_address(&tile[(middle + lane % 8) * 16 + upper]));
    for (int i = 0; i < 2; ++i) {
      const int k = lane % 4 * 2 + 8 * i;
      b[i] = pack<Element>(ValueB(k, lane / 4), ValueB(k + 1, lane / 4));
    }
  }
  float d[4] = {1.0f, 1.0f, 1.0f, 1.0f};
  mma_m16n8k16<Element>(d, a, b);
  StoreD(d, out);
}

class MmaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: the instruction maps are not checked";
    }
    ASSERT_EQ(cudaMalloc(&out_, kM * kN * sizeof(float)), cudaSuccess);
  }
  void TearDown() override { cudaFree(out_); }

  void ExpectProduct() {
    std::vector<float> d(kM * kN);
    ASSERT_EQ(cudaMemcpy(d.data(), out_, d.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (int row = 0; row < kM; ++row) {
      for (int column = 0; column < kN; ++column) {
        int want = 1;
        for (int k = 0; k < kK; ++k) {
          want += ValueA(row, k) * ValueB(k, column);
        }
        EXPECT_EQ(d[row * kN + column], static_cast<float>(want))
            << row << ", " << column;
      }
    }
  }

  float* out_ = nullptr;
};

TEST_F(MmaTest, RowsThroughLdmatrix) {
  ProductKernel<__nv_bfloat16, false><<<1, 32>>>(out_);
  ExpectProduct();
  ProductKernel<__half, false><<<1, 32>>>(out_);
  ExpectProduct();
}

TEST_F(MmaTest, TransposedThroughLdmatrixAndMovmatrix) {
  ProductKernel<__nv_bfloat16, true><<<1, 32>>>(out_);
  ExpectProduct();
  ProductKernel<__half, true><<<1, 32>>>(out_);
  ExpectProduct();
}

}  // namespace
}  // namespace attendant::kernels::sm90::ptx
