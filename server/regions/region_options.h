// Which regions a server serves, and within what bounds. Nothing by default:
// each kind is memory of the machine that somebody else gets to use.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "server/regions/region_memory.h"
#include "server/request/bounds.h"

namespace attendant::server {

struct RegionOptions {
  bool buffers = false;   // server's own memory, for anyone who can call
  bool posix = false;     // shm objects of this machine, by name
  bool cuda_ipc = false;  // memory of other processes on the GPU, by handle
  // Unix socket for descriptors (memfd, VMM); empty = none.
  std::string socket;
  std::vector<uid_t> users;  // who may use it, beside root and the server's own

  int64_t max_regions = 1024;
  int64_t max_regions_per_owner = 256;
  int64_t max_bytes = int64_t{4} << 30;
  int64_t max_bytes_per_owner = 0;  // 0 = max_bytes
  int64_t idle_seconds = 600;

  bool served() const {
    return buffers || posix || cuda_ipc || !socket.empty();
  }
  // Sets the region bounds, all 0 if no regions are served.
  void ApplyTo(Bounds* bounds) const;
  // "host_buffer", "memfd", ...: what a server on this device takes.
  std::vector<std::string> KindNames(bool on_gpu) const;
};

}  // namespace attendant::server
