#include "client/cpp/formats/npy.h"

#include <cstring>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attendant::client::formats {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr struct {
  std::string_view descr;
  ElementType type;
} kTypes[] = {
    {"<f2", ElementType::kFloat16},  {"<f4", ElementType::kFloat32},
    {"<f8", ElementType::kFloat64},  {"|b1", ElementType::kBool},
    {"|u1", ElementType::kUint8},    {"<u2", ElementType::kUint16},
    {"<i4", ElementType::kInt32},    {"<i8", ElementType::kInt64},
    {"|V2", ElementType::kOpaque16}, {"<V2", ElementType::kOpaque16},
};

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError("npy: " + what);
}

// Reads the header's Python dictionary: {'descr': '<f2', 'fortran_order':
// False, 'shape': (1, 2), }. Keys come in any order.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  absl::StatusOr<FileTensor> Read() {
    FileTensor tensor;
    bool have_type = false, have_order = false, have_shape = false;
    if (!Take('{')) return Malformed();
    while (!Take('}')) {
      std::string_view key;
      if (!TakeString(&key) || !Take(':')) return Malformed();
      absl::Status status = absl::OkStatus();
      if (key == "descr" && !std::exchange(have_type, true)) {
        status = ReadType(&tensor);
      } else if (key == "fortran_order" && !std::exchange(have_order, true)) {
        status = ReadOrder();
      } else if (key == "shape" && !std::exchange(have_shape, true)) {
        status = ReadShape(&tensor);
      } else {
        return Malformed();
      }
      if (!status.ok()) return status;
      Take(',');
    }
    SkipSpace();
    if (!have_type || !have_order || !have_shape || !text_.empty()) {
      return Malformed();
    }
    return tensor;
  }

 private:
  static absl::Status Malformed() {
    return Bad("the header is not {'descr', 'fortran_order', 'shape'}");
  }
  void SkipSpace() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\n')) {
      text_.remove_prefix(1);
    }
  }
  bool Take(char expected) {
    SkipSpace();
    if (text_.empty() || text_[0] != expected) return false;
    text_.remove_prefix(1);
    return true;
  }
  bool TakeWord(std::string_view word) {
    SkipSpace();
    if (text_.substr(0, word.size()) != word) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  bool TakeString(std::string_view* value) {
    SkipSpace();
    if (text_.empty() || (text_[0] != '\'' && text_[0] != '"')) return false;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return false;
    *value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return true;
  }

  absl::Status ReadType(FileTensor* tensor) {
    std::string_view descr;
    if (!TakeString(&descr)) {
      return Bad("the element type is not a plain one (a structured array?)");
    }
    for (const auto& entry : kTypes) {
      if (entry.descr == descr) {
        tensor->type = entry.type;
        return absl::OkStatus();
      }
    }
    return Bad(absl::StrCat("element type ", std::string(descr),
                            " is not one of <f2 <f4 <f8 |b1 |u1 <u2 <i4 <i8 "
                            "|V2"));
  }

  absl::Status ReadOrder() {
    if (TakeWord("False")) return absl::OkStatus();
    if (!TakeWord("True")) return Malformed();
    return Bad(
        "the array is in Fortran order; save np.ascontiguousarray(array)");
  }

  absl::Status ReadShape(FileTensor* tensor) {
    if (!Take('(')) return Malformed();
    while (!Take(')')) {
      SkipSpace();
      int64_t size = 0;
      size_t digits = 0;
      while (digits < text_.size() && text_[digits] >= '0' &&
             text_[digits] <= '9') {
        if (digits >= 18) return Bad("a size of the shape is over 10^18");
        size = size * 10 + (text_[digits++] - '0');
      }
      if (digits == 0 || tensor->shape.size() >= 32) return Malformed();
      text_.remove_prefix(digits);
      tensor->shape.push_back(size);
      if (!Take(',') && (text_.empty() || text_[0] != ')')) return Malformed();
    }
    return absl::OkStatus();
  }

  std::string_view text_;
};

}  // namespace

absl::StatusOr<FileTensor> ParseNpy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()),
                              file.size());
  if (text.size() < 10 || text.substr(0, kMagic.size()) != kMagic) {
    return Bad("the file does not begin with \\x93NUMPY");
  }
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const int version = byte(6);
  if (version < 1 || version > 3) {
    return Bad(absl::StrCat("version is ", version, ", must be 1..3"));
  }
  const size_t prefix = version == 1 ? 10 : 12;
  if (text.size() < prefix) return Bad("the file ends within its header");
  size_t header = byte(8) | static_cast<size_t>(byte(9)) << 8;
  if (version > 1) {
    header |= static_cast<size_t>(byte(10)) << 16 |
              static_cast<size_t>(byte(11)) << 24;
  }
  if (header > text.size() - prefix) {
    return Bad("the file ends within its header");
  }
  absl::StatusOr<FileTensor> tensor =
      HeaderReader(text.substr(prefix, header)).Read();
  if (!tensor.ok()) return tensor.status();
  const absl::StatusOr<int64_t> bytes =
      CheckedBytes(tensor->type, tensor->shape);
  if (!bytes.ok()) return bytes.status();
  const std::span<const std::byte> data = file.subspan(prefix + header);
  if (static_cast<int64_t>(data.size()) != *bytes) {
    return Bad(absl::StrCat("the data has ", data.size(),
                            " bytes, its shape and type ", *bytes));
  }
  tensor->bytes.assign(data.begin(), data.end());
  return tensor;
}

absl::StatusOr<std::vector<std::byte>> FormatNpy(const FileTensor& tensor) {
  std::string_view descr;
  for (const auto& entry : kTypes) {
    if (entry.type == tensor.type && descr.empty()) descr = entry.descr;
  }
  if (descr.empty()) {
    return Bad(absl::StrCat("numpy has no ", Name(tensor.type),
                            "; write .safetensors"));
  }
  std::string header = absl::StrCat("{'descr': '", std::string(descr),
                                    "', 'fortran_order': False, 'shape': (");
  for (const int64_t size : tensor.shape) absl::StrAppend(&header, size, ", ");
  header += "), }";
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string prefix(kMagic);
  prefix += {'\x01', '\x00', static_cast<char>(header.size() & 0xff),
             static_cast<char>(header.size() >> 8)};
  std::vector<std::byte> file(prefix.size() + header.size() +
                              tensor.bytes.size());
  std::memcpy(file.data(), prefix.data(), prefix.size());
  std::memcpy(file.data() + prefix.size(), header.data(), header.size());
  if (!tensor.bytes.empty()) {
    std::memcpy(file.data() + prefix.size() + header.size(),
                tensor.bytes.data(), tensor.bytes.size());
  }
  return file;
}

}  // namespace attendant::client::formats
