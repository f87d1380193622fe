// The wire bytes that C++ and Python share.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <string>
#include <vector>

#include "client/cpp/reply_decoder.h"
#include "client/cpp/request_encoder.h"

namespace attendant::client {
namespace {

// Hexadecimal bytes; lines that start with # are comments.
std::string GoldenBytes(const std::string& name) {
  std::ifstream file(std::string(ATTENDANT_GOLDEN_DIR) + "/" + name);
  EXPECT_TRUE(file.is_open());
  std::string bytes, line, byte;
  while (std::getline(file, line)) {
    if (line.rfind('#', 0) == 0) continue;
    for (size_t at = 0; at + 1 < line.size(); at += 3) {
      bytes += static_cast<char>(std::stoi(line.substr(at, 2), nullptr, 16));
    }
  }
  return bytes;
}

TEST(Golden, TheEncoderWritesTheRequest) {
  const float q[4] = {};
  const float k[6] = {1, 2, 3, 4, 5, 6};
  const float v[3] = {1, 2, 6};
  AttendArgs args;
  args.request_id = "golden-1";
  args.q = {q, DataType::kFloat32, {1, 2, 1, 2}, {}};
  args.k = {k, DataType::kFloat32, {1, 3, 1, 2}, {}};
  args.v = {v, DataType::kFloat32, {1, 3, 1, 1}, {}};
  args.seqlens_k = {3};
  args.softmax_scale = 0.5f;
  args.causal = true;
  args.alignment = CausalAlignment::kBottomRight;
  args.return_lse = true;
  BorrowedMemory borrowed;
  const auto encoded = EncodeAttendRequest(*EncodeHeader(args), borrowed);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(encoded->message.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  EXPECT_EQ(bytes, GoldenBytes("attend_request.hex"));
}

TEST(Golden, TheDecoderReadsTheResponse) {
  const grpc::Slice slice(GoldenBytes("attend_response.hex"));
  AttendArgs args;
  args.return_lse = true;
  const auto result = DecodeAttendResponse(args, grpc::ByteBuffer(&slice, 1));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->request_id, "golden-1");
  EXPECT_EQ(result->out.as<float>()[0], 1.5f);
  EXPECT_EQ(result->out.as<float>()[1], 3.0f);
  EXPECT_FLOAT_EQ(result->lse.as<float>()[0], std::log(2.0f));
  EXPECT_FLOAT_EQ(result->lse.as<float>()[1], std::log(3.0f));
  EXPECT_EQ(result->exposed.total_ns, 4240);
  EXPECT_EQ(result->busy.kernel_ns, 3000);
  EXPECT_EQ(result->batch_tokens, 2);
  EXPECT_EQ(result->workspace_bytes, 512);
  EXPECT_EQ(result->served_by.kernel, "cpu");
  EXPECT_EQ(result->served_by.compute_dtype, DataType::kFloat32);
}

}  // namespace
}  // namespace attendant::client
