// Where the CPU kernel's time goes: nanoseconds of each vectorised piece of the
// tile form, for every instruction set of this machine, on one thread. One
// block is 128 keys against 48 rows (fewer where vectors are shorter).
//
//     cpu_stage_bench [set]
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "kernels/cpu/amx.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/tile_layout.h"

namespace attendant::kernels::cpu {
namespace {

// Median nanoseconds of a call.
double Time(const std::function<void()>& call) {
  using Clock = std::chrono::steady_clock;
  constexpr int kRounds = 15, kCalls = 200;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kCalls; ++i) call();
    times.push_back(
        std::chrono::duration<double, std::nano>(Clock::now() - start).count() /
        kCalls);
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  return times[kRounds / 2];
}

// All memory of one block, in whole cache lines; K and V are small numbers of
// either type.
struct Block {
  explicit Block(int64_t dims) {
    for (auto* part : {&k, &q, &v_pack, &s, &p, &o, &max, &row_max, &row_sum,
                       &alpha, &row}) {
      *part = hwy::AllocateAligned<float>(kFloats);
      std::fill_n(part->get(), kFloats, 0.0f);
    }
    std::fill_n(reinterpret_cast<uint32_t*>(k.get()), kKeyBlock * dims,
                0x3c003c00u);
  }
  static constexpr int64_t kFloats = (kKeyBlock + kPanelGap) * 256;
  hwy::AlignedFreeUniquePtr<float[]> k, q, v_pack, s, p, o, max, row_max,
      row_sum, alpha, row;
};

void Measure(const char* name, DataType dtype, const TileKernels& tile,
             int64_t dims) {
  Block block(dims);
  const int64_t panels = (dims + tile.panel - 1) / tile.panel;
  const int64_t pitch =
      kKeyBlock * tile.panel + kPanelGap / (tile.bf16_operands ? 2 : 4);
  if (tile.begin != nullptr) tile.begin();
  const double scores = Time([&] {
    tile.scores({block.q.get(), kMaxVecs, block.k.get(), dims, kKeyBlock,
                 kKeyBlock, dims, 0.1f, block.s.get(), block.max.get()});
  });
  const double softmax = Time([&] {
    tile.softmax({block.s.get(), block.p.get(), kMaxVecs, kKeyBlock,
                  block.max.get(), block.row_max.get(), block.row_sum.get(),
                  block.alpha.get()});
  });
  const double values = Time([&] {
    tile.values({block.p.get(), kMaxVecs, kKeyBlock, block.v_pack.get(), pitch,
                 panels, block.alpha.get(), block.o.get()});
  });
  const double pack = Time([&] {
    tile.pack_values({block.k.get(), dtype, dims, kKeyBlock, kKeyBlock, dims,
                      block.v_pack.get(), pitch, block.row.get()});
  });
  if (tile.end != nullptr) tile.end();
  const double all = scores + softmax + values + pack / 4;
  const double flops = 4.0 * kKeyBlock * kMaxVecs * tile.lanes * dims;
  std::printf(
      "%-12s %s d%-3d  scores %7.0f  softmax %7.0f  values %7.0f  "
      "pack %7.0f ns  %7.1f GFLOP/s\n",
      name, Name(dtype), static_cast<int>(dims), scores, softmax, values, pack,
      flops / all);
}

}  // namespace
}  // namespace attendant::kernels::cpu

int main(int argc, char** argv) {
  namespace cpu = attendant::kernels::cpu;
  using attendant::kernels::DataType;
  for (const cpu::SimdKernels& simd : cpu::AllSimdKernels()) {
    const std::string_view name = simd.name;
    if (argc > 1 ? name != argv[1] : name == cpu::kEmulatedAmx) continue;
    for (int dims : {64, 128}) {
      cpu::Measure(simd.name, DataType::kFloat32, simd.tile_fp32, dims);
      cpu::Measure(simd.name, DataType::kBFloat16, simd.tile_bf16, dims);
    }
  }
}
