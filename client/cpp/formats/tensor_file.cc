#include "client/cpp/formats/tensor_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cpp/formats/npy.h"
#include "client/cpp/formats/safetensors.h"
#include "client/cpp/formats/zip_archive.h"

namespace attendant::client::formats {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

enum class Format { kNpy, kNpz, kSafetensors };

absl::StatusOr<Format> FormatOf(const std::string& path) {
  if (absl::EndsWith(path, ".npy")) return Format::kNpy;
  if (absl::EndsWith(path, ".npz")) return Format::kNpz;
  if (absl::EndsWith(path, ".safetensors")) return Format::kSafetensors;
  return absl::InvalidArgumentError(
      absl::StrCat(path, " ends in none of .npy, .npz, .safetensors"));
}

absl::Status IoError(const std::string& path, int error) {
  const std::string text = absl::StrCat(path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnknownError(text);
}

absl::StatusOr<std::vector<std::byte>> ReadFile(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (file == nullptr) return IoError(path, errno);
  std::vector<std::byte> bytes;
  size_t size = 0;
  do {
    bytes.resize(std::max<size_t>(size * 2, 1 << 16));
    size += std::fread(bytes.data() + size, 1, bytes.size() - size, file.get());
  } while (size == bytes.size());
  if (std::ferror(file.get()) != 0) return IoError(path, errno);
  bytes.resize(size);
  return bytes;
}

absl::Status WriteFile(const std::string& path,
                       const std::vector<std::byte>& bytes) {
  File file(std::fopen(path.c_str(), "wb"));
  if (file == nullptr) return IoError(path, errno);
  if (std::fwrite(bytes.data(), 1, bytes.size(), file.get()) != bytes.size()) {
    return IoError(path, errno);
  }
  if (std::fclose(file.release()) != 0) return IoError(path, errno);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<FileTensor>> ParseNpz(
    const std::vector<std::byte>& bytes) {
  absl::StatusOr<std::vector<ZipEntry>> entries = ParseZip(bytes);
  if (!entries.ok()) return entries.status();
  std::vector<FileTensor> tensors;
  for (ZipEntry& entry : *entries) {
    absl::StatusOr<FileTensor> tensor = ParseNpy(entry.bytes);
    if (!tensor.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(entry.name, ": ", tensor.status().message()));
    }
    tensor->name = std::string(absl::StripSuffix(entry.name, ".npy"));
    entry.bytes = {};
    tensors.push_back(*std::move(tensor));
  }
  return tensors;
}

absl::StatusOr<std::vector<FileTensor>> Parse(
    Format format, const std::vector<std::byte>& bytes) {
  if (format == Format::kSafetensors) return ParseSafetensors(bytes);
  if (format == Format::kNpz) return ParseNpz(bytes);
  absl::StatusOr<FileTensor> tensor = ParseNpy(bytes);
  if (!tensor.ok()) return tensor.status();
  std::vector<FileTensor> tensors;
  tensors.push_back(*std::move(tensor));
  return tensors;
}

absl::StatusOr<std::vector<std::byte>> Pack(
    Format format, const std::vector<FileTensor>& tensors) {
  if (format == Format::kSafetensors) return FormatSafetensors(tensors);
  if (format == Format::kNpy) {
    if (tensors.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("a .npy file holds one array, not ", tensors.size(),
                       "; write .npz or .safetensors"));
    }
    return FormatNpy(tensors[0]);
  }
  std::vector<ZipEntry> entries;
  for (const FileTensor& tensor : tensors) {
    absl::StatusOr<std::vector<std::byte>> npy = FormatNpy(tensor);
    if (!npy.ok()) return npy.status();
    entries.push_back({tensor.name + ".npy", *std::move(npy)});
  }
  return FormatZip(entries);
}

absl::Status Prefixed(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ReadTensorFile(
    const std::string& path) {
  const absl::StatusOr<Format> format = FormatOf(path);
  if (!format.ok()) return format.status();
  const absl::StatusOr<std::vector<std::byte>> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<std::vector<FileTensor>> tensors = Parse(*format, *bytes);
  if (!tensors.ok()) return Prefixed(path, tensors.status());
  return tensors;
}

absl::Status WriteTensorFile(const std::string& path,
                             const std::vector<FileTensor>& tensors) {
  const absl::StatusOr<Format> format = FormatOf(path);
  if (!format.ok()) return format.status();
  const absl::StatusOr<std::vector<std::byte>> bytes = Pack(*format, tensors);
  if (!bytes.ok()) return Prefixed(path, bytes.status());
  return WriteFile(path, *bytes);
}

}  // namespace attendant::client::formats
