#include "client/cpp/request_encoder.h"

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "attendant/v1/attention.pb.h"
#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

std::string Join(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

v1::AttendRequest Parsed(const EncodedRequest& encoded) {
  v1::AttendRequest request;
  const std::string bytes = Join(encoded.message);
  EXPECT_EQ(static_cast<int64_t>(bytes.size()), encoded.num_bytes);
  EXPECT_TRUE(request.ParseFromString(bytes));
  return request;
}

TEST(RequestEncoder, WritesEveryOption) {
  const float data[2] = {1, 2};
  AttendArgs args;
  args.request_id = "id";
  args.layout = Layout::kTHD;
  args.qkv = {data, DataType::kFloat32, {1, 2, 1}, {}};
  args.num_q_heads = 3;
  args.num_kv_heads = 4;
  args.compute_dtype = DataType::kBFloat16;
  args.output_dtype = DataType::kFloat32;
  args.cu_seqlens_q = {0, 5};
  args.cu_seqlens_k = {0, 6};
  args.seqlens_q = {7};
  args.seqlens_k = {8};
  args.starts_q = {9};
  args.starts_k = {10};
  args.softmax_scale = 0.0f;
  args.softcap = 0.0f;
  args.causal = true;
  args.alignment = CausalAlignment::kBottomRight;
  args.window_left = 0;
  args.window_right = 0;
  args.alibi_slopes = {0.5f};
  args.sinks = {-1.0f};
  args.mask = {data, DataType::kBool, {1, 1, 2, 4}, {}};
  args.return_lse = true;
  args.dropout_p = 0.25f;
  args.priority = -3;
  args.ordering_key = "key";
  BorrowedMemory borrowed;
  const auto encoded = EncodeAttendRequest(*EncodeHeader(args), borrowed);
  ASSERT_TRUE(encoded.ok()) << encoded.status();
  const v1::AttendRequest request = Parsed(*encoded);

  // Every field but what this request leaves out: q, k, v and regions.
  const google::protobuf::Reflection* reflection = request.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(request, &fields);
  EXPECT_EQ(static_cast<int>(fields.size()),
            v1::AttendRequest::descriptor()->field_count() - 8);
  EXPECT_TRUE(request.has_softmax_scale());
  EXPECT_TRUE(request.has_softcap());
  EXPECT_TRUE(request.has_window_left());
  EXPECT_EQ(request.compute_dtype(), v1::DATA_TYPE_BF16);
  EXPECT_EQ(request.alignment(), v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  EXPECT_EQ(request.qkv().layout(), v1::LAYOUT_THD);
  EXPECT_EQ(request.mask().layout(), v1::LAYOUT_UNSPECIFIED);
  EXPECT_EQ(request.cu_seqlens_k(1), 6);
  EXPECT_EQ(request.starts_k(0), 10);
  EXPECT_EQ(request.qkv_data(),
            std::string(reinterpret_cast<const char*>(data), sizeof(data)));
  EXPECT_EQ(request.mask_data().size(), 8);
}

TEST(RequestEncoder, LeavesUnsetWhatIsNotGiven) {
  BorrowedMemory borrowed;
  const auto encoded = EncodeAttendRequest(*EncodeHeader({}), borrowed);
  ASSERT_TRUE(encoded.ok());
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(
      Parsed(*encoded), v1::AttendRequest()));
}

TEST(RequestEncoder, LendsTensorsAndGetsThemBack) {
  // Larger than what gRPC inlines into a slice.
  const std::vector<float> data(1000, 1.5f);
  AttendArgs args;
  args.q = {data.data(), DataType::kFloat32, {1, 10, 10, 10}, {}};
  args.k = args.v = args.q;
  BorrowedMemory borrowed;
  auto encoded = EncodeAttendRequest(*EncodeHeader(args), borrowed);
  ASSERT_TRUE(encoded.ok());
  EXPECT_EQ(Parsed(*encoded).v_data().size(), 4000);
  {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(encoded->message.Dump(&slices).ok());
    const auto* begin = reinterpret_cast<const uint8_t*>(data.data());
    EXPECT_EQ(std::count_if(slices.begin(), slices.end(),
                            [&](const grpc::Slice& slice) {
                              return slice.begin() == begin;
                            }),
              3);
  }
  EXPECT_FALSE(borrowed.AllReturned());
  encoded->message.Clear();
  EXPECT_TRUE(borrowed.AllReturned());
}

TEST(RequestEncoder, RefusesWhatNoMessageHolds) {
  const float value = 0;
  AttendArgs args;
  // Never read: the size alone is too large.
  args.q = {&value, DataType::kFloat32, {1, int64_t{1} << 32, 1, 1}, {}};
  BorrowedMemory borrowed;
  const auto encoded = EncodeAttendRequest(*EncodeHeader(args), borrowed);
  ASSERT_FALSE(encoded.ok());
  EXPECT_EQ(GetErrorDetail(encoded.status())->field, "request");
}

}  // namespace
}  // namespace attendant::client
