// Bytes of any kind to the readers of tensor files. The first byte chooses the
// format. What is read is written and read again, and must be the same.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <vector>

#include "client/cpp/formats/npy.h"
#include "client/cpp/formats/safetensors.h"
#include "client/cpp/formats/zip_archive.h"

namespace {

using namespace attendant::client::formats;

void Require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool Same(const FileTensor& a, const FileTensor& b) {
  return a.name == b.name && a.type == b.type && a.shape == b.shape &&
         a.bytes == b.bytes;
}

void RequireWhole(const FileTensor& tensor) {
  const auto bytes = CheckedBytes(tensor.type, tensor.shape);
  Require(bytes.ok() && *bytes == static_cast<int64_t>(tensor.bytes.size()),
          "bytes are not what the shape says");
}

void FuzzNpy(std::span<const std::byte> file) {
  const auto tensor = ParseNpy(file);
  if (!tensor.ok()) return;
  RequireWhole(*tensor);
  const auto written = FormatNpy(*tensor);
  Require(written.ok(), "npy is not written");
  const auto again = ParseNpy(*written);
  Require(again.ok() && Same(*tensor, *again), "npy is not read again");
}

void FuzzZip(std::span<const std::byte> file) {
  const auto entries = ParseZip(file);
  if (!entries.ok()) return;
  const auto written = FormatZip(*entries);
  Require(written.ok(), "zip is not written");
  const auto again = ParseZip(*written);
  Require(again.ok() && again->size() == entries->size(),
          "zip is not read again");
}

void FuzzSafetensors(std::span<const std::byte> file) {
  const auto tensors = ParseSafetensors(file);
  if (!tensors.ok()) return;
  for (const FileTensor& tensor : *tensors) RequireWhole(tensor);
  const auto written = FormatSafetensors(*tensors);
  Require(written.ok(), "safetensors is not written");
  const auto again = ParseSafetensors(*written);
  Require(again.ok() && again->size() == tensors->size(),
          "safetensors is not read again");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::span<const std::byte> file(
      reinterpret_cast<const std::byte*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0:
      FuzzNpy(file);
      break;
    case 1:
      FuzzZip(file);
      break;
    default:
      FuzzSafetensors(file);
  }
  return 0;
}
