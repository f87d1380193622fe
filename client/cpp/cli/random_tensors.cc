#include "client/cpp/cli/random_tensors.h"

#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/cpp/cli/equal_sequences.h"
#include "client/cpp/cli/kernel_type.h"
#include "client/cpp/client_error.h"
#include "kernels/base/data_type.h"

namespace attendant::client::cli {
namespace {

using formats::FileTensor;

absl::StatusOr<TensorView> RandomTensor(std::vector<int64_t> shape,
                                        DataType dtype, std::mt19937_64* engine,
                                        Request* request) {
  const absl::StatusOr<int64_t> elements = NumElements(shape);
  if (!elements.ok()) return elements.status();
  if (*elements > int64_t{1} << 31) {
    return InvalidField("--random", absl::StrCat(*elements, " elements"),
                        "at most 2^31 a tensor");
  }
  FileTensor tensor;
  tensor.shape = shape;
  // Never without an address, also for an empty tensor.
  tensor.bytes.resize(
      static_cast<size_t>(std::max<int64_t>(NumBytes(dtype, *elements), 1)));
  std::normal_distribution<float> normal;
  for (int64_t e = 0; e < *elements; ++e) {
    kernels::StoreFromFloat(tensor.bytes.data(), ToKernelType(dtype), e,
                            normal(*engine));
  }
  const FileTensor& kept = request->tensors.emplace_back(std::move(tensor));
  return TensorView{kept.bytes.data(), dtype, std::move(shape), {}};
}

}  // namespace

absl::Status MakeRandomTensors(const Flags& flags, DataType dtype,
                               Request* request) {
  absl::StatusOr<std::vector<int64_t>> sizes = flags.Ints("random");
  if (!sizes.ok()) return sizes.status();
  if (sizes->size() == 6) sizes->push_back(sizes->back());
  bool good = sizes->size() == 7;
  for (const int64_t size : *sizes) {
    good = good && size >= 0 && size < int64_t{1} << 31;
  }
  if (!good) {
    return InvalidField("--random", flags.String("random"),
                        "B,SQ,SK,HQ,HKV,D[,DV], each >= 0");
  }
  const absl::StatusOr<std::optional<int64_t>> seed = flags.Int("seed");
  if (!seed.ok()) return seed.status();
  if (dtype == DataType::kUnset) dtype = DataType::kFloat32;
  std::mt19937_64 engine(static_cast<uint64_t>(seed->value_or(1)));
  const std::vector<int64_t>& s = *sizes;
  AttendArgs& args = request->args;
  const Layout layout = args.layout;
  const struct {
    TensorView* view;
    std::vector<int64_t> shape;
  } tensors[] = {{&args.q, ShapeOf(layout, s[0], s[1], s[3], s[5])},
                 {&args.k, ShapeOf(layout, s[0], s[2], s[4], s[5])},
                 {&args.v, ShapeOf(layout, s[0], s[2], s[4], s[6])}};
  for (const auto& tensor : tensors) {
    absl::StatusOr<TensorView> view =
        RandomTensor(tensor.shape, dtype, &engine, request);
    if (!view.ok()) return view.status();
    *tensor.view = *std::move(view);
  }
  if (layout == Layout::kTHD) {
    args.cu_seqlens_q = EqualSequences(s[0], s[1]);
    args.cu_seqlens_k = EqualSequences(s[0], s[2]);
  }
  return absl::OkStatus();
}

}  // namespace attendant::client::cli
