#include "tests/testing/wire_bytes.h"

#include <cstdlib>
#include <fstream>
#include <new>
#include <sstream>

#include "kernels/base/check.h"

namespace attendant::testing {
namespace {

void Append(const std::vector<float>& values, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(values.data()),
                values.size() * sizeof(float));
}

void SetSpec(const std::vector<int64_t>& shape, v1::TensorSpec* spec) {
  spec->set_dtype(v1::DATA_TYPE_FP32);
  spec->set_layout(v1::LAYOUT_BSHD);
  spec->mutable_shape()->Assign(shape.begin(), shape.end());
}

}  // namespace

std::string GoldenBytes(const std::string& name) {
  std::ifstream file(std::string(ATTENDANT_GOLDEN_DIR) + "/" + name);
  ATTENDANT_CHECK(file.good());
  std::string bytes;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      bytes.push_back(
          static_cast<char>(std::strtoul(word.c_str(), nullptr, 16)));
    }
  }
  return bytes;
}

v1::AttendRequest GoldenRequest() {
  v1::AttendRequest request;
  request.set_request_id("golden-1");
  SetSpec({1, 2, 1, 2}, request.mutable_q());
  SetSpec({1, 3, 1, 2}, request.mutable_k());
  SetSpec({1, 3, 1, 1}, request.mutable_v());
  request.add_seqlens_k(3);
  request.set_softmax_scale(0.5f);
  request.set_causal(true);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  request.set_return_lse(true);
  Append({0, 0, 0, 0}, request.mutable_q_data());
  Append({1, 2, 3, 4, 5, 6}, request.mutable_k_data());
  Append({1, 2, 6}, request.mutable_v_data());
  return request;
}

grpc::ByteBuffer OneSlice(const std::string& bytes) {
  return Slices(bytes, {});
}

grpc::ByteBuffer Slices(const std::string& bytes,
                        const std::vector<size_t>& sizes) {
  std::vector<grpc::Slice> slices;
  size_t done = 0;
  for (const size_t size : sizes) {
    slices.emplace_back(bytes.substr(done, size));
    done += size;
  }
  slices.emplace_back(bytes.substr(done));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer RandomSlices(const std::string& bytes, std::mt19937* random) {
  std::vector<size_t> sizes;
  for (size_t left = bytes.size(); left > 0;) {
    // Mostly tiny, now and then large.
    const size_t most = (*random)() % 4 == 0 ? left : std::min<size_t>(left, 7);
    sizes.push_back((*random)() % (most + 1));
    left -= sizes.back();
  }
  return Slices(bytes, sizes);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  ATTENDANT_CHECK(buffer.Dump(&slices).ok());
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

absl::StatusOr<server::ParsedRequest> Parse(const v1::AttendRequest& request) {
  return server::ParseAttendRequest(OneSlice(request.SerializeAsString()));
}

absl::StatusOr<server::HostBlock> PlainPool::Allocate(int64_t bytes) {
  auto* data = static_cast<std::byte*>(
      ::operator new(static_cast<size_t>(bytes), std::align_val_t(256)));
  used_bytes_ += bytes;
  return server::HostBlock(this, data, bytes);
}

void PlainPool::Release(std::byte* data, int64_t bytes) {
  ::operator delete(data, std::align_val_t(256));
  used_bytes_ -= bytes;
}

}  // namespace attendant::testing
