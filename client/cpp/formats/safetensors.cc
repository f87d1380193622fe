#include "client/cpp/formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attendant::client::formats {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own bound
constexpr struct {
  const char* name;
  ElementType type;
} kTypes[] = {
    {"F16", ElementType::kFloat16}, {"F32", ElementType::kFloat32},
    {"F64", ElementType::kFloat64}, {"BF16", ElementType::kBFloat16},
    {"BOOL", ElementType::kBool},   {"U8", ElementType::kUint8},
    {"U16", ElementType::kUint16},  {"I32", ElementType::kInt32},
    {"I64", ElementType::kInt64},
};

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError("safetensors: " + what);
}

struct Entry {
  FileTensor tensor;
  uint64_t begin = 0;
  uint64_t end = 0;
};

// JSON itself lets a name come twice.
absl::StatusOr<json> ParseHeader(const std::string& text) {
  std::set<std::string> names;
  bool twice = false;
  const json header = json::parse(
      text,
      [&](int depth, json::parse_event_t event, json& parsed) {
        if (event == json::parse_event_t::key && depth == 1) {
          twice = twice || !names.insert(parsed.get<std::string>()).second;
        }
        return true;
      },
      /*allow_exceptions=*/false);
  if (header.is_discarded() || !header.is_object()) {
    return Bad("the header is not a JSON object");
  }
  if (twice) return Bad("a name comes twice");
  return header;
}

absl::Status ReadShape(const json& value, FileTensor* tensor) {
  if (!value.is_array()) return Bad(tensor->name + " has no shape");
  for (const json& size : value) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{1}
                                                                 << 60) {
      return Bad(tensor->name + " has an impossible shape");
    }
    tensor->shape.push_back(static_cast<int64_t>(size.get<uint64_t>()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Entry> ReadEntry(const std::string& name, const json& value) {
  Entry entry;
  entry.tensor.name = name;
  if (!value.is_object() || !value.contains("dtype") ||
      !value["dtype"].is_string() || !value.contains("shape") ||
      !value.contains("data_offsets")) {
    return Bad(name + " is not {dtype, shape, data_offsets}");
  }
  const std::string dtype = value["dtype"].get<std::string>();
  const auto* type =
      std::find_if(std::begin(kTypes), std::end(kTypes),
                   [&](const auto& row) { return dtype == row.name; });
  if (type == std::end(kTypes)) {
    return Bad(absl::StrCat(name, " is of type ", dtype,
                            ", which is not served here"));
  }
  entry.tensor.type = type->type;
  absl::Status status = ReadShape(value["shape"], &entry.tensor);
  if (!status.ok()) return status;
  const json& offsets = value["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2 ||
      !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
    return Bad(name + " has no data_offsets");
  }
  entry.begin = offsets[0].get<uint64_t>();
  entry.end = offsets[1].get<uint64_t>();
  const absl::StatusOr<int64_t> bytes =
      CheckedBytes(entry.tensor.type, entry.tensor.shape);
  if (!bytes.ok()) return bytes.status();
  if (entry.begin > entry.end ||
      entry.end - entry.begin != static_cast<uint64_t>(*bytes)) {
    return Bad(absl::StrCat(name, " has data_offsets ", entry.begin, " to ",
                            entry.end, ", its shape ", *bytes, " bytes"));
  }
  return entry;
}

}  // namespace

absl::StatusOr<std::vector<FileTensor>> ParseSafetensors(
    std::span<const std::byte> file) {
  uint64_t header_bytes = 0;
  if (file.size() < sizeof(header_bytes)) return Bad("the file is too short");
  std::memcpy(&header_bytes, file.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes ||
      header_bytes > file.size() - sizeof(header_bytes)) {
    return Bad(absl::StrCat("the header has ", header_bytes,
                            " bytes, more than the file or 100 MB"));
  }
  const std::string text(
      reinterpret_cast<const char*>(file.data()) + sizeof(header_bytes),
      header_bytes);
  const absl::StatusOr<json> header = ParseHeader(text);
  if (!header.ok()) return header.status();
  std::vector<Entry> entries;
  for (const auto& [name, value] : header->items()) {
    if (name == "__metadata__") continue;
    absl::StatusOr<Entry> entry = ReadEntry(name, value);
    if (!entry.ok()) return entry.status();
    entries.push_back(*std::move(entry));
  }
  std::stable_sort(
      entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
      });
  const std::span<const std::byte> data =
      file.subspan(sizeof(header_bytes) + header_bytes);
  uint64_t end = 0;
  std::vector<FileTensor> tensors;
  for (Entry& entry : entries) {
    if (entry.begin != end || entry.end > data.size()) {
      return Bad(entry.tensor.name + " leaves a hole, overlaps or is cut off");
    }
    end = entry.end;
    const auto bytes = data.subspan(entry.begin, entry.end - entry.begin);
    entry.tensor.bytes.assign(bytes.begin(), bytes.end());
    tensors.push_back(std::move(entry.tensor));
  }
  if (end != data.size()) return Bad("bytes behind the last tensor");
  return tensors;
}

absl::StatusOr<std::vector<std::byte>> FormatSafetensors(
    const std::vector<FileTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  uint64_t offset = 0;
  for (const FileTensor& tensor : tensors) {
    const auto* type =
        std::find_if(std::begin(kTypes), std::end(kTypes),
                     [&](const auto& t) { return t.type == tensor.type; });
    if (type == std::end(kTypes)) {
      return Bad(absl::StrCat("there is no type for ", Name(tensor.type)));
    }
    header[tensor.name] = {
        {"dtype", type->name},
        {"shape", tensor.shape},
        {"data_offsets", {offset, offset + tensor.bytes.size()}}};
    offset += tensor.bytes.size();
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t header_bytes = text.size();
  std::vector<std::byte> file(sizeof(header_bytes) + text.size() + offset);
  std::memcpy(file.data(), &header_bytes, sizeof(header_bytes));
  std::memcpy(file.data() + sizeof(header_bytes), text.data(), text.size());
  size_t at = sizeof(header_bytes) + text.size();
  for (const FileTensor& tensor : tensors) {
    std::copy(tensor.bytes.begin(), tensor.bytes.end(),
              file.begin() + static_cast<ptrdiff_t>(at));
    at += tensor.bytes.size();
  }
  return file;
}

}  // namespace attendant::client::formats
