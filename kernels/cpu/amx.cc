#include "kernels/cpu/amx.h"

#include <cstring>

#ifdef ATTENDANT_AVX512_BF16
#include <cpuid.h>

#include "kernels/cpu/amx_tiles.h"
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace attendant::kernels::cpu {

#ifdef ATTENDANT_AVX512_BF16
namespace {

bool ProcessorHasAmxBf16() {
  constexpr uint32_t kAmxBf16 = 1u << 22, kAmxTile = 1u << 24;  // edx
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

// XCR0's bits of the tiles' configuration and data. Requires OSXSAVE, which
// AVX-512's use implies.
bool SystemSavesTiles() {
  constexpr uint32_t kTileState = 3u << 17;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & kTileState) == kTileState;
}

// Linux gives the 8 KB of tile state only to a process that asks.
bool AskForTiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

}  // namespace

bool AmxBf16Available() {
  static const bool available =
      ProcessorHasAmxBf16() && SystemSavesTiles() && AskForTiles();
  return available;
}

void AddAmx(std::vector<SimdKernels>* kernels) {
  const SimdKernels avx512_bf16 = kernels->front();
  if (std::strcmp(avx512_bf16.name, "AVX3_BF16") != 0) return;
  SimdKernels amx = avx512_bf16;
  if (AmxBf16Available()) {
    amx.name = "AMX";
    amx.tile_bf16 = AmxTileKernels(avx512_bf16.tile_bf16);
    amx.decode_bf16.begin = AmxTiles::Configure;
    amx.decode_bf16.end = AmxTiles::Release;
    amx.decode_bf16.scores = AmxDecodeScores;
    amx.decode_bf16.values = AmxDecodeValues;
    kernels->insert(kernels->begin(), amx);
  }
  amx.name = kEmulatedAmx;
  amx.tile_bf16 = EmulatedAmxTileKernels(avx512_bf16.tile_bf16);
  amx.decode_bf16.begin = EmulatedAmxTiles::Configure;
  amx.decode_bf16.end = EmulatedAmxTiles::Release;
  amx.decode_bf16.scores = EmulatedAmxDecodeScores;
  amx.decode_bf16.values = EmulatedAmxDecodeValues;
  kernels->push_back(amx);
}
#else
bool AmxBf16Available() { return false; }
void AddAmx(std::vector<SimdKernels>*) {}
#endif

}  // namespace attendant::kernels::cpu
