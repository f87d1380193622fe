// Device memory that another process can open: what a caller on the GPU has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::testing {

class CudaExport {
 public:
  // cudaMalloc and an IPC handle.
  static absl::StatusOr<std::unique_ptr<CudaExport>> CreateIpc(int64_t bytes);
  // cuMemCreate and a file descriptor; bytes are rounded up to 2 MiB.
  static absl::StatusOr<std::unique_ptr<CudaExport>> CreateVmm(int64_t bytes);
  ~CudaExport();

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  const std::string& handle() const { return handle_; }  // IPC
  int descriptor() const { return descriptor_; }         // VMM

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  std::string handle_;
  int descriptor_ = -1;
};

// "GPU-..." of device 0.
std::string CudaUuid();

}  // namespace attendant::testing
