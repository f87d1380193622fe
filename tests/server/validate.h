// Requests through parser and validator, and their input blocks filled as the
// server fills them.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/request/problem_validator.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {

inline constexpr kernels::DeviceProperties kCpu;

// A request with its input block filled as the server fills it.
struct Loaded {
  std::unique_ptr<ValidatedRequest> request;
  std::vector<std::byte> input;
  std::vector<std::byte> output;
  kernels::AttentionProblem problem;
};

inline absl::StatusOr<std::unique_ptr<ValidatedRequest>> Validate(
    const v1::AttendRequest& request, const Bounds& bounds = {},
    const kernels::DeviceProperties& device = kCpu) {
  const auto parsed = testing::Parse(request);
  if (!parsed.ok()) return parsed.status();
  return ValidateRequest(*parsed, bounds, device);
}

inline Loaded Load(const std::string& bytes) {
  Loaded loaded;
  const grpc::ByteBuffer message = testing::OneSlice(bytes);
  const auto parsed = ParseAttendRequest(message);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  auto request = ValidateRequest(*parsed, Bounds(), kCpu);
  EXPECT_TRUE(request.ok()) << request.status();
  if (!request.ok()) return loaded;
  loaded.request = *std::move(request);
  loaded.input.resize(loaded.request->input_bytes, std::byte{0xff});
  loaded.output.resize(loaded.request->output_block_bytes());
  for (const ValidatedRequest::Image& image : loaded.request->images) {
    const auto& extent = parsed->tensors[static_cast<int>(image.field)];
    EXPECT_EQ(image.block_offset % 256, 0);
    EXPECT_LE(image.block_offset + image.block_bytes,
              loaded.request->input_bytes);
    EXPECT_TRUE(CopyTensorBytes(message, extent.offset, image.wire_bytes,
                                image.from, image.to,
                                loaded.input.data() + image.block_offset)
                    .ok());
  }
  loaded.problem =
      Placed(*loaded.request, loaded.input.data(), loaded.output.data());
  return loaded;
}

inline Loaded Load(const v1::AttendRequest& request) {
  return Load(request.SerializeAsString());
}

inline float At(const kernels::InputTensor& tensor, kernels::DataType dtype,
                int64_t b, int64_t row, int64_t head, int64_t d) {
  return kernels::LoadAsFloat(tensor.data, dtype,
                              b * tensor.batch_stride +
                                  row * tensor.row_stride +
                                  head * tensor.head_stride + d);
}

inline float FloatAt(const std::string& bytes, int64_t index) {
  float value = 0;
  std::memcpy(&value, &bytes[index * sizeof(float)], sizeof(value));
  return value;
}

}  // namespace attendant::server
