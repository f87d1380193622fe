#include "client/cpp/kept_heap.h"

#include <cstddef>
#include <cstdlib>

namespace attendant::client {

void KeepFreedMemory() {
  constexpr size_t kBytes = size_t{8} << 20;
  // Volatile: a compiler may leave out a block that nobody uses.
  void* volatile block = std::malloc(kBytes);
  std::free(block);
}

}  // namespace attendant::client
