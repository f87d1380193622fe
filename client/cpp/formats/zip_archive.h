// The part of ZIP that .npz files use: stored and deflated entries, ZIP64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::client::formats {

struct ZipEntry {
  std::string name;
  std::vector<std::byte> bytes;
};

// Every entry, unpacked and checked against its CRC. INVALID_ARGUMENT for
// anything malformed, encrypted or packed otherwise, and for entries that claim
// more than deflate can have packed.
absl::StatusOr<std::vector<ZipEntry>> ParseZip(std::span<const std::byte> file);

// All entries stored. INVALID_ARGUMENT above 4 GiB or 65535 entries.
absl::StatusOr<std::vector<std::byte>> FormatZip(
    const std::vector<ZipEntry>& entries);

}  // namespace attendant::client::formats
