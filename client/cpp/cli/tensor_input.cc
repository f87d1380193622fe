#include "client/cpp/cli/tensor_input.h"

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/client_error.h"
#include "client/cpp/formats/tensor_file.h"

namespace attendant::client::cli {
namespace {

using formats::ElementType;
using formats::FileTensor;

constexpr const char* kTensorNames[] = {"q", "k", "v", "qkv", "mask"};

absl::StatusOr<DataType> DataTypeOf(const FileTensor& tensor,
                                    DataType integers_hold) {
  switch (tensor.type) {
    case ElementType::kFloat16:
      return DataType::kFloat16;
    case ElementType::kFloat32:
      return DataType::kFloat32;
    case ElementType::kBFloat16:
      return DataType::kBFloat16;
    case ElementType::kBool:
    case ElementType::kUint8:
      return DataType::kBool;
    case ElementType::kUint16:
    case ElementType::kOpaque16:
      if (integers_hold == DataType::kBFloat16) return integers_hold;
      return InvalidField(tensor.name + ".dtype", Name(tensor.type),
                          "fp32, fp16 or bf16 (--dtype=bf16 if it holds that)");
    default:
      return InvalidField(tensor.name + ".dtype", Name(tensor.type),
                          "fp32, fp16 or bf16");
  }
}

// Elements of an integer or float tensor as T.
template <typename T>
absl::Status ReadList(const FileTensor& tensor, std::vector<T>* list) {
  const auto append = [&](auto example) {
    for (size_t at = 0; at < tensor.bytes.size(); at += sizeof(example)) {
      std::memcpy(&example, tensor.bytes.data() + at, sizeof(example));
      list->push_back(static_cast<T>(example));
    }
    return absl::OkStatus();
  };
  list->clear();
  const bool integers = std::is_integral_v<T>;
  if (integers && tensor.type == ElementType::kInt32) return append(int32_t{});
  if (integers && tensor.type == ElementType::kInt64) return append(int64_t{});
  if (!integers && tensor.type == ElementType::kFloat32) return append(0.0f);
  if (!integers && tensor.type == ElementType::kFloat64) return append(0.0);
  return InvalidField(tensor.name + ".dtype", Name(tensor.type),
                      integers ? "int32 or int64" : "float32 or float64");
}

// Takes `tensor` as the request's field of its name. False: no such field.
absl::StatusOr<bool> TakeTensor(FileTensor tensor, DataType integers_hold,
                                Request* request) {
  AttendArgs& args = request->args;
  const std::map<std::string, TensorView*> views = {{"q", &args.q},
                                                    {"k", &args.k},
                                                    {"v", &args.v},
                                                    {"qkv", &args.qkv},
                                                    {"mask", &args.mask}};
  const std::map<std::string, std::vector<float>*> floats = {
      {"alibi_slopes", &args.alibi_slopes}, {"sinks", &args.sinks}};
  const std::map<std::string, std::vector<int32_t>*> int32s = {
      {"cu_seqlens_q", &args.cu_seqlens_q},
      {"cu_seqlens_k", &args.cu_seqlens_k}};
  const std::map<std::string, std::vector<int64_t>*> int64s = {
      {"seqlens_q", &args.seqlens_q},
      {"seqlens_k", &args.seqlens_k},
      {"starts_q", &args.starts_q},
      {"starts_k", &args.starts_k}};
  absl::Status status;
  if (const auto list = floats.find(tensor.name); list != floats.end()) {
    status = ReadList(tensor, list->second);
  } else if (const auto list = int32s.find(tensor.name); list != int32s.end()) {
    status = ReadList(tensor, list->second);
  } else if (const auto list = int64s.find(tensor.name); list != int64s.end()) {
    status = ReadList(tensor, list->second);
  } else if (const auto view = views.find(tensor.name); view != views.end()) {
    const absl::StatusOr<DataType> dtype = DataTypeOf(tensor, integers_hold);
    if (!dtype.ok()) return dtype.status();
    const FileTensor& kept = request->tensors.emplace_back(std::move(tensor));
    // An empty vector may have no address; no byte of it is ever read.
    *view->second = {kept.bytes.empty()
                         ? &kept
                         : static_cast<const void*>(kept.bytes.data()),
                     *dtype,
                     kept.shape,
                     {}};
  } else {
    return false;
  }
  if (!status.ok()) return status;
  return true;
}

// "FILE:NAME" or "FILE", which then holds one tensor, or one named `name`.
absl::StatusOr<FileTensor> ReadOne(const std::string& name,
                                   const std::string& source) {
  std::string path = source, wanted = name;
  const size_t colon = source.rfind(':');
  const bool named = colon != std::string::npos && colon > 0 &&
                     source.find('/', colon) == std::string::npos;
  if (named) {
    path = source.substr(0, colon);
    wanted = source.substr(colon + 1);
  }
  absl::StatusOr<std::vector<FileTensor>> tensors =
      formats::ReadTensorFile(path);
  if (!tensors.ok()) return tensors.status();
  std::string names;
  for (FileTensor& tensor : *tensors) {
    if (tensor.name == wanted || (tensors->size() == 1 && !named)) {
      tensor.name = name;
      return std::move(tensor);
    }
    absl::StrAppend(&names, names.empty() ? "" : ", ", tensor.name);
  }
  return InvalidField("--" + name, source, "a tensor of the file: " + names);
}

}  // namespace

absl::Status ReadTensors(const Flags& flags, DataType integers_hold,
                         Request* request) {
  for (const std::string& path : flags.positional()) {
    absl::StatusOr<std::vector<FileTensor>> tensors =
        formats::ReadTensorFile(path);
    if (!tensors.ok()) return tensors.status();
    bool taken_any = false;
    for (FileTensor& tensor : *tensors) {
      const absl::StatusOr<bool> taken =
          TakeTensor(std::move(tensor), integers_hold, request);
      if (!taken.ok()) return taken.status();
      taken_any = taken_any || *taken;
    }
    if (!taken_any) {
      return InvalidField(path, "without a tensor of a known name",
                          "q, k, v, qkv, mask, ... (or use --q=FILE:NAME)");
    }
  }
  for (const char* name : kTensorNames) {
    if (!flags.Has(name)) continue;
    absl::StatusOr<FileTensor> tensor = ReadOne(name, flags.String(name));
    if (!tensor.ok()) return tensor.status();
    const absl::StatusOr<bool> taken =
        TakeTensor(*std::move(tensor), integers_hold, request);
    if (!taken.ok()) return taken.status();
  }
  if (!request->args.q.given() && !request->args.qkv.given()) {
    return InvalidField("input", "none",
                        "a file with q, k, v or qkv, or --random");
  }
  return absl::OkStatus();
}

absl::Status PackMaskBits(Request* request) {
  TensorView& mask = request->args.mask;
  if (mask.dtype != DataType::kBool || mask.shape.empty()) {
    return InvalidField("--mask-bits", "given without a boolean mask",
                        "given with one");
  }
  const auto* entries = static_cast<const unsigned char*>(mask.data);
  const int64_t columns = mask.shape.back();
  int64_t rows = 1;
  for (size_t d = 0; d + 1 < mask.shape.size(); ++d) rows *= mask.shape[d];
  const int64_t row_bytes = (columns + 7) / 8;
  FileTensor packed;
  packed.bytes.resize(static_cast<size_t>(rows * row_bytes));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      if (entries[r * columns + c] == 0) continue;
      packed.bytes[static_cast<size_t>(r * row_bytes + c / 8)] |= std::byte{1}
                                                                  << (c % 8);
    }
  }
  const FileTensor& kept = request->tensors.emplace_back(std::move(packed));
  mask.dtype = DataType::kBoolBits;
  mask.data =
      kept.bytes.empty() ? static_cast<const void*>(&kept) : kept.bytes.data();
  return absl::OkStatus();
}

}  // namespace attendant::client::cli
