#include "client/cpp/formats/zip_archive.h"

#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attendant::client::formats {
namespace {

// Section numbers are those of PKWARE's APPNOTE.
constexpr uint32_t kLocalHeader = 0x04034b50;      // 4.3.7
constexpr uint32_t kCentralHeader = 0x02014b50;    // 4.3.12
constexpr uint32_t kZip64EndRecord = 0x06064b50;   // 4.3.14
constexpr uint32_t kZip64EndLocator = 0x07064b50;  // 4.3.15
constexpr uint32_t kEndOfCentral = 0x06054b50;     // 4.3.16
constexpr size_t kLocalHeaderBytes = 30;
constexpr size_t kCentralHeaderBytes = 46;
constexpr size_t kEndBytes = 22;
constexpr size_t kLocatorBytes = 20;
constexpr size_t kZip64EndBytes = 56;
constexpr uint32_t kInZip64 = 0xffffffff;
constexpr int kStored = 0;
constexpr int kDeflated = 8;
// Deflate packs 1032 to 1 at best.
constexpr uint64_t kMaxRatio = 1032;

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError("zip: " + what);
}

// Little-endian reads that never leave the file.
class Bytes {
 public:
  explicit Bytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  size_t size() const { return bytes_.size(); }
  bool Has(uint64_t offset, uint64_t count) const {
    return offset <= bytes_.size() && count <= bytes_.size() - offset;
  }
  uint64_t Read(uint64_t offset, int count) const {
    uint64_t value = 0;
    for (int i = 0; i < count; ++i) {
      value |= static_cast<uint64_t>(bytes_[offset + static_cast<size_t>(i)])
               << (8 * i);
    }
    return value;
  }
  std::span<const std::byte> Sub(uint64_t offset, uint64_t count) const {
    return bytes_.subspan(offset, count);
  }

 private:
  std::span<const std::byte> bytes_;
};

struct Directory {
  uint64_t entries = 0;
  uint64_t offset = 0;
};

struct CentralEntry {
  std::string name;
  int flags = 0;
  int method = 0;
  uint32_t crc = 0;
  uint64_t packed = 0;
  uint64_t unpacked = 0;
  uint64_t local_offset = 0;
};

absl::StatusOr<Directory> FindDirectory(const Bytes& file) {
  if (file.size() < kEndBytes) return Bad("the file is too short");
  const size_t last = file.size() - kEndBytes;
  const size_t first = last > 0xffff ? last - 0xffff : 0;
  size_t end = last;
  while (file.Read(end, 4) != kEndOfCentral) {
    if (end == first) return Bad("there is no end of the central directory");
    --end;
  }
  Directory directory{file.Read(end + 10, 2), file.Read(end + 16, 4)};
  const bool zip64 =
      directory.entries == 0xffff || directory.offset == kInZip64;
  if (!zip64) return directory;
  if (end < kLocatorBytes ||
      file.Read(end - kLocatorBytes, 4) != kZip64EndLocator) {
    return Bad("the ZIP64 locator is missing");
  }
  const uint64_t record = file.Read(end - kLocatorBytes + 8, 8);
  if (!file.Has(record, kZip64EndBytes) ||
      file.Read(record, 4) != kZip64EndRecord) {
    return Bad("the ZIP64 end record is missing");
  }
  return Directory{file.Read(record + 32, 8), file.Read(record + 48, 8)};
}

// Takes 64-bit sizes from the extra field, for those that are all ones.
absl::Status ReadZip64Extra(const Bytes& file, uint64_t begin, uint64_t end,
                            CentralEntry* entry) {
  while (begin + 4 <= end) {
    const uint64_t id = file.Read(begin, 2);
    const uint64_t size = file.Read(begin + 2, 2);
    begin += 4;
    if (size > end - begin) break;
    if (id == 1) {
      const uint64_t field_end = begin + size;
      for (uint64_t* value :
           {&entry->unpacked, &entry->packed, &entry->local_offset}) {
        if (*value != kInZip64) continue;
        if (field_end - begin < 8) return Bad("a ZIP64 field is too short");
        *value = file.Read(begin, 8);
        begin += 8;
      }
      return absl::OkStatus();
    }
    begin += size;
  }
  return absl::OkStatus();
}

// Moves *offset behind the header.
absl::StatusOr<CentralEntry> ReadCentralEntry(const Bytes& file,
                                              uint64_t* offset) {
  const uint64_t at = *offset;
  if (!file.Has(at, kCentralHeaderBytes) ||
      file.Read(at, 4) != kCentralHeader) {
    return Bad("the central directory is cut off");
  }
  CentralEntry entry;
  entry.flags = static_cast<int>(file.Read(at + 8, 2));
  entry.method = static_cast<int>(file.Read(at + 10, 2));
  entry.crc = static_cast<uint32_t>(file.Read(at + 16, 4));
  entry.packed = file.Read(at + 20, 4);
  entry.unpacked = file.Read(at + 24, 4);
  entry.local_offset = file.Read(at + 42, 4);
  const uint64_t name = file.Read(at + 28, 2);
  const uint64_t extra = file.Read(at + 30, 2);
  const uint64_t comment = file.Read(at + 32, 2);
  const uint64_t name_at = at + kCentralHeaderBytes;
  if (!file.Has(name_at, name + extra + comment)) {
    return Bad("the central directory is cut off");
  }
  const std::span<const std::byte> text = file.Sub(name_at, name);
  entry.name.assign(reinterpret_cast<const char*>(text.data()), text.size());
  absl::Status status =
      ReadZip64Extra(file, name_at + name, name_at + name + extra, &entry);
  if (!status.ok()) return status;
  *offset = name_at + name + extra + comment;
  return entry;
}

absl::StatusOr<std::vector<std::byte>> Inflate(
    std::span<const std::byte> packed, uint64_t unpacked_bytes) {
  std::vector<std::byte> unpacked(unpacked_bytes);
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) {
    return absl::ResourceExhaustedError("zip: no memory to inflate");
  }
  // zlib counts in 32 bits.
  constexpr size_t kPiece = std::numeric_limits<uInt>::max();
  size_t taken = 0, given = 0;
  int result = Z_OK;
  std::byte none;
  while (result == Z_OK) {
    const size_t in = std::min(kPiece, packed.size() - taken);
    const size_t out = std::min(kPiece, unpacked.size() - given);
    stream.next_in =
        reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + taken));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(
        unpacked.empty() ? &none : unpacked.data() + given);
    stream.avail_out = static_cast<uInt>(out);
    result = inflate(&stream, Z_NO_FLUSH);
    taken += in - stream.avail_in;
    given += out - stream.avail_out;
  }
  inflateEnd(&stream);
  if (result != Z_STREAM_END || taken != packed.size() ||
      given != unpacked.size()) {
    return Bad("a deflated entry is broken");
  }
  return unpacked;
}

absl::StatusOr<ZipEntry> ReadEntry(const Bytes& file,
                                   const CentralEntry& entry) {
  const uint64_t at = entry.local_offset;
  if (!file.Has(at, kLocalHeaderBytes) || file.Read(at, 4) != kLocalHeader) {
    return Bad(entry.name + " has no local header");
  }
  if ((entry.flags & 1) != 0) return Bad(entry.name + " is encrypted");
  const uint64_t data =
      at + kLocalHeaderBytes + file.Read(at + 26, 2) + file.Read(at + 28, 2);
  if (!file.Has(data, entry.packed)) return Bad(entry.name + " is cut off");
  const std::span<const std::byte> packed = file.Sub(data, entry.packed);
  ZipEntry read;
  read.name = entry.name;
  if (entry.method == kStored && entry.packed == entry.unpacked) {
    read.bytes.assign(packed.begin(), packed.end());
  } else if (entry.method == kDeflated &&
             entry.unpacked / kMaxRatio <= entry.packed) {
    absl::StatusOr<std::vector<std::byte>> bytes =
        Inflate(packed, entry.unpacked);
    if (!bytes.ok()) return bytes.status();
    read.bytes = *std::move(bytes);
  } else {
    return Bad(
        absl::StrCat(entry.name, " is packed by method ", entry.method,
                     " from ", entry.unpacked, " to ", entry.packed,
                     " bytes; only plain and deflated entries are read"));
  }
  const uLong crc = crc32_z(
      0, reinterpret_cast<const Bytef*>(read.bytes.data()), read.bytes.size());
  if (!read.bytes.empty() && crc != entry.crc) {
    return Bad(entry.name + " does not match its CRC");
  }
  return read;
}

void Append(uint64_t value, int count, std::vector<std::byte>* bytes) {
  for (int i = 0; i < count; ++i) {
    bytes->push_back(static_cast<std::byte>(value >> (8 * i)));
  }
}

void AppendText(const std::string& text, std::vector<std::byte>* bytes) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  bytes->insert(bytes->end(), begin, begin + text.size());
}

// The fields that local and central headers have in common, 4.3.7 and 4.3.12.
void AppendSharedFields(const ZipEntry& entry, std::vector<std::byte>* bytes) {
  Append(20, 2, bytes);  // version needed
  Append(0, 2, bytes);   // flags
  Append(kStored, 2, bytes);
  Append(0, 2, bytes);           // time
  Append(1 << 5 | 1, 2, bytes);  // 1980-01-01, the earliest date
  Append(crc32_z(0, reinterpret_cast<const Bytef*>(entry.bytes.data()),
                 entry.bytes.size()),
         4, bytes);
  Append(entry.bytes.size(), 4, bytes);
  Append(entry.bytes.size(), 4, bytes);
  Append(entry.name.size(), 2, bytes);
  Append(0, 2, bytes);  // extra
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ParseZip(
    std::span<const std::byte> bytes) {
  const Bytes file(bytes);
  const absl::StatusOr<Directory> directory = FindDirectory(file);
  if (!directory.ok()) return directory.status();
  std::vector<ZipEntry> entries;
  uint64_t offset = directory->offset;
  uint64_t total = 0;
  for (uint64_t e = 0; e < directory->entries; ++e) {
    const absl::StatusOr<CentralEntry> central =
        ReadCentralEntry(file, &offset);
    if (!central.ok()) return central.status();
    // Entries that share bytes of the file would multiply it without bound.
    total += std::min<uint64_t>(central->packed, file.size() + 1);
    if (total > file.size()) return Bad("entries overlap");
    absl::StatusOr<ZipEntry> entry = ReadEntry(file, *central);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  return entries;
}

absl::StatusOr<std::vector<std::byte>> FormatZip(
    const std::vector<ZipEntry>& entries) {
  uint64_t total = kEndBytes;
  for (const ZipEntry& entry : entries) {
    total += kLocalHeaderBytes + kCentralHeaderBytes + 2 * entry.name.size() +
             entry.bytes.size();
    if (entry.name.size() > 0xffff) return Bad("a name is over 65535 bytes");
  }
  if (total >= kInZip64 || entries.size() >= 0xffff) {
    return Bad("over 4 GiB or 65534 entries; write .safetensors");
  }
  std::vector<std::byte> file;
  file.reserve(total);
  std::vector<std::byte> directory;
  for (const ZipEntry& entry : entries) {
    const size_t offset = file.size();
    Append(kLocalHeader, 4, &file);
    AppendSharedFields(entry, &file);
    AppendText(entry.name, &file);
    file.insert(file.end(), entry.bytes.begin(), entry.bytes.end());
    Append(kCentralHeader, 4, &directory);
    Append(20, 2, &directory);  // version made by
    AppendSharedFields(entry, &directory);
    Append(0, 10, &directory);  // comment, disk, attributes
    Append(offset, 4, &directory);
    AppendText(entry.name, &directory);
  }
  const size_t directory_offset = file.size();
  file.insert(file.end(), directory.begin(), directory.end());
  Append(kEndOfCentral, 4, &file);
  Append(0, 4, &file);  // disks
  Append(entries.size(), 2, &file);
  Append(entries.size(), 2, &file);
  Append(directory.size(), 4, &file);
  Append(directory_offset, 4, &file);
  Append(0, 2, &file);  // comment
  return file;
}

}  // namespace attendant::client::formats
