// Bytes of any kind to the readers of tensor files. The first byte chooses the
// format. What is read is written and read again, and must be the same.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/formats/npy.h"
#include "client/cpp/formats/safetensors.h"
#include "client/cpp/formats/zip_archive.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace attendant::client::formats;

using ::attendant::fuzz::Require;

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

int WriteSeeds(const std::string& folder) {
  FileTensor tensor;
  tensor.name = "q";
  tensor.type = ElementType::kFloat32;
  tensor.shape = {2, 3};
  tensor.bytes.resize(24);
  const auto write = [&](const char* name, char format, const auto& file) {
    Require(file.ok(), "a seed is not written");
    std::ofstream(folder + "/" + name)
        << format
        << std::string(reinterpret_cast<const char*>(file->data()),
                       file->size());
  };
  const auto npy = FormatNpy(tensor);
  write("npy", '\0', npy);
  ZipEntry entry;
  entry.name = "q.npy";
  if (npy.ok()) entry.bytes = *npy;
  write("npz", '\1', FormatZip({entry}));
  FileTensor second = tensor;
  second.name = "k";
  second.shape = {6};
  write("safetensors", '\2', FormatSafetensors({tensor, second}));
  return 0;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return attendant::fuzz::Start(*argc, *argv, WriteSeeds);
}

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
