// The attendant command.
#include <malloc.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "client/cpp/cli/commands.h"

namespace {

// Before the first thread: what gRPC needs of the process.
void TuneForGrpc() {
  // Debian's Abseil looks for cycles in the order of locks at every lock that
  // gRPC takes: a tenth of a small call's instructions.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Freed buffers stay for the next message, and no large one is mapped apart:
  // faulting pages in again takes longer than the copy of their bytes.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, 64 << 20);
  // Reads into slices of up to 4 MiB instead of 64 KiB; a caller's own setting
  // wins.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);
}

}  // namespace

int main(int argc, char** argv) {
  TuneForGrpc();
  return attendant::client::cli::RunCommandLine(
      std::vector<std::string>(argv + 1, argv + argc));
}
