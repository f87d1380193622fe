#include "kernels/cpu/instruction_set.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "kernels/cpu/amx.h"
#include "kernels/cpu/avx512_bf16.h"

namespace attendant::kernels::cpu {
namespace {

const SimdKernels* Find(std::string_view name) {
  for (const SimdKernels& kernels : AllSimdKernels()) {
    if (name == kernels.name) return &kernels;
  }
  return nullptr;
}

const SimdKernels* Default() {
  const char* name = std::getenv("ATTENDANT_CPU_TARGET");
  if (name == nullptr || *name == '\0') return &AllSimdKernels().front();
  if (const SimdKernels* found = Find(name)) return found;
  std::fprintf(stderr, "ATTENDANT_CPU_TARGET=%s: this machine has", name);
  for (const SimdKernels& kernels : AllSimdKernels()) {
    std::fprintf(stderr, " %s", kernels.name);
  }
  std::fprintf(stderr, "\n");
  std::exit(1);
}

std::atomic<const SimdKernels*>& Active() {
  static std::atomic<const SimdKernels*> active = Default();
  return active;
}

}  // namespace

const std::vector<SimdKernels>& AllSimdKernels() {
  static const auto* const all = [] {
    auto* kernels = new std::vector<SimdKernels>(HighwayKernels());
    AddAvx512Bf16(kernels);
    AddAmx(kernels);
    return kernels;
  }();
  return *all;
}

const SimdKernels& ActiveSimdKernels() {
  return *Active().load(std::memory_order_relaxed);
}

bool SetActiveSimdKernels(std::string_view name) {
  const SimdKernels* found = Find(name);
  if (found != nullptr) Active().store(found, std::memory_order_relaxed);
  return found != nullptr;
}

}  // namespace attendant::kernels::cpu
