#include "server/request/wire_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "server/request/errors.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using attendant::testing::GoldenBytes;
using attendant::testing::GoldenRequest;
using attendant::testing::GoodRequest;
using attendant::testing::OneSlice;
using attendant::testing::RandomSlices;
using attendant::testing::Slices;
using google::protobuf::util::MessageDifferencer;
using kernels::DataType;
using ::testing::HasSubstr;

std::string* TensorBytes(int i, v1::AttendRequest* request) {
  switch (i) {
    case 0:
      return request->mutable_q_data();
    case 1:
      return request->mutable_k_data();
    case 2:
      return request->mutable_v_data();
    case 3:
      return request->mutable_qkv_data();
    default:
      return request->mutable_mask_data();
  }
}

// The whole message again, from the header and the tensors' extents.
v1::AttendRequest Whole(const grpc::ByteBuffer& message,
                        const ParsedRequest& parsed) {
  v1::AttendRequest request = parsed.header;
  for (int i = 0; i < kNumTensorFields; ++i) {
    const ParsedRequest::Extent& extent = parsed.tensors[i];
    if (extent.bytes <= 0) continue;
    std::string* bytes = TensorBytes(i, &request);
    bytes->resize(extent.bytes);
    EXPECT_TRUE(CopyTensorBytes(message, extent.offset, extent.bytes,
                                DataType::kFloat32, DataType::kFloat32,
                                reinterpret_cast<std::byte*>(bytes->data()))
                    .ok());
  }
  return request;
}

void ExpectParsesAs(const grpc::ByteBuffer& message,
                    const v1::AttendRequest& expected) {
  const auto parsed = ParseAttendRequest(message);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->header.q_data().empty());
  EXPECT_TRUE(MessageDifferencer::Equals(Whole(message, *parsed), expected));
}

// Every option set, a mask too.
v1::AttendRequest FullRequest() {
  v1::AttendRequest r = GoodRequest();
  r.set_compute_dtype(v1::DATA_TYPE_BF16);
  r.set_output_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t length : {2, 3}) r.add_seqlens_q(length);
  for (const int64_t length : {3, 4}) r.add_seqlens_k(length);
  for (const int64_t start : {1, 0}) r.add_starts_k(start);
  r.set_softmax_scale(-0.25f);
  r.set_softcap(30);
  r.set_window_left(0);
  r.set_window_right(1000);
  for (int h = 0; h < 4; ++h) r.add_alibi_slopes(0.125f * h);
  for (int h = 0; h < 4; ++h) r.add_sinks(-1.0f * h);
  r.set_priority(-7);
  r.set_ordering_key("session 4");
  attendant::testing::SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_BHSD,
                                {2, 4, 3, 4}, r.mutable_mask(),
                                r.mutable_mask_data());
  return r;
}

// Top-level fields of a message, tags included.
std::vector<std::string> FieldsOf(const v1::AttendRequest& request) {
  std::vector<std::string> fields;
  std::vector<const google::protobuf::FieldDescriptor*> set;
  request.GetReflection()->ListFields(request, &set);
  for (const auto* field : set) {
    v1::AttendRequest one = request;
    for (const auto* other : set) {
      if (other != field) one.GetReflection()->ClearField(&one, other);
    }
    fields.push_back(one.SerializeAsString());
  }
  return fields;
}

TEST(ParseAttendRequestTest, GoldenBytesAreTheGoldenRequest) {
  const std::string golden = GoldenBytes("attend_request.hex");
  EXPECT_EQ(GoldenRequest().SerializeAsString(), golden);
  ExpectParsesAs(OneSlice(golden), GoldenRequest());
  const auto parsed = ParseAttendRequest(OneSlice(golden));
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->tensors[1].offset, 86);
  EXPECT_EQ(parsed->tensors[1].bytes, 24);
  EXPECT_EQ(parsed->tensors[3].bytes, -1);
}

TEST(ParseAttendRequestTest, EmptyMessageIsAnEmptyRequest) {
  ExpectParsesAs(OneSlice(""), v1::AttendRequest());
  ExpectParsesAs(grpc::ByteBuffer(), v1::AttendRequest());
}

TEST(ParseAttendRequestTest, AnyFieldOrderParsesAlike) {
  std::mt19937 random(1);
  std::vector<std::string> fields = FieldsOf(FullRequest());
  for (int i = 0; i < 300; ++i) {
    std::shuffle(fields.begin(), fields.end(), random);
    const std::string bytes =
        std::accumulate(fields.begin(), fields.end(), std::string());
    ExpectParsesAs(RandomSlices(bytes, &random), FullRequest());
  }
}

TEST(ParseAttendRequestTest, AnySlicesParseAlike) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t size = 1; size < 40; ++size) {
    ExpectParsesAs(
        Slices(bytes, std::vector<size_t>(bytes.size() / size, size)),
        FullRequest());
  }
}

TEST(ParseAttendRequestTest, LastOfTwoTensorFieldsWins) {
  v1::AttendRequest second;
  second.set_q_data("the second q, of another size");
  v1::AttendRequest expected = GoodRequest();
  expected.set_q_data(second.q_data());
  ExpectParsesAs(
      OneSlice(GoodRequest().SerializeAsString() + second.SerializeAsString()),
      expected);
}

TEST(ParseAttendRequestTest, RepeatedFieldsMergeAsProtobufMergesThem) {
  v1::AttendRequest second;
  second.set_request_id("second");
  second.set_causal(true);
  second.set_softmax_scale(0);
  second.mutable_q()->add_shape(17);
  second.mutable_q()->set_dtype(v1::DATA_TYPE_BF16);
  second.mutable_mask()->set_layout(v1::LAYOUT_BHSD);
  second.add_seqlens_k(5);
  const std::string bytes = second.SerializeAsString() +
                            FullRequest().SerializeAsString() +
                            second.SerializeAsString();
  v1::AttendRequest expected;
  ASSERT_TRUE(expected.ParseFromString(bytes));
  ExpectParsesAs(OneSlice(bytes), expected);
}

TEST(ParseAttendRequestTest, UnpackedListsParse) {
  // seqlens_k (13) as two single varints.
  ParsedRequest expected;
  expected.header.add_seqlens_k(3);
  expected.header.add_seqlens_k(300);
  ExpectParsesAs(OneSlice("\x68\x03\x68\xac\x02"), expected.header);
}

TEST(ParseAttendRequestTest, EveryTruncationFailsOrEndsAtAField) {
  const std::string bytes = FullRequest().SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string part = bytes.substr(0, size);
    const grpc::ByteBuffer message = OneSlice(part);
    const auto parsed = ParseAttendRequest(message);
    v1::AttendRequest expected;
    if (!expected.ParseFromString(part)) {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument)
          << size;
      EXPECT_TRUE(DetailOf(parsed.status()).has_value());
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_TRUE(MessageDifferencer::Equals(Whole(message, *parsed), expected));
  }
}

TEST(ParseAttendRequestTest, TruncatedTensorNamesFieldAndSizes) {
  v1::AttendRequest request;
  request.set_k_data(std::string(100, 'k'));
  std::string bytes = request.SerializeAsString();
  bytes.resize(bytes.size() - 10);
  const auto parsed = ParseAttendRequest(OneSlice(bytes));
  EXPECT_EQ(parsed.status().message(),
            "k_data is 100 bytes long, must be at most the 90 bytes left in "
            "the message");
}

TEST(ParseAttendRequestTest, TagsBeyond32BitsAreMalformed) {
  // 2^32 + the tag of `causal`: truncated to 32 bits it would be that field.
  const auto parsed =
      ParseAttendRequest(OneSlice(std::string("\x90\x81\x80\x80\x10\x01", 6)));
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  for (const char* bytes : {"\x07", "\x06", "\x0c", "\x02"}) {
    EXPECT_EQ(ParseAttendRequest(OneSlice(bytes)).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(ParseAttendRequestTest, LengthsBeyond63BitsAreMalformed) {
  const std::string huge("\xca\x3e\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
                         12);
  const auto parsed = ParseAttendRequest(OneSlice(huge));
  EXPECT_EQ(DetailOf(parsed.status())->field(), "q_data");
}

TEST(ParseAttendRequestTest, RandomDamageNeverParsesAsSomethingElse) {
  std::mt19937 random(2);
  const std::string good = FullRequest().SerializeAsString();
  int parsed_count = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (int n = static_cast<int>(random() % 4); n >= 0; --n) {
      const size_t at = random() % 300;
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.erase(at, random() % 9);
          break;
        default:
          bytes.insert(at, 1 + random() % 5, static_cast<char>(random()));
      }
    }
    const grpc::ByteBuffer message = RandomSlices(bytes, &random);
    const auto parsed = ParseAttendRequest(message);
    if (!parsed.ok()) {
      EXPECT_TRUE(DetailOf(parsed.status()).has_value());
      continue;
    }
    ++parsed_count;
    v1::AttendRequest expected;
    ASSERT_TRUE(expected.ParseFromString(bytes)) << i;
    ASSERT_TRUE(CheckNoUnknownFields(expected).ok()) << i;
    // By bytes: damaged floats may be NaN.
    ASSERT_EQ(Whole(message, *parsed).SerializeAsString(),
              expected.SerializeAsString())
        << i;
  }
  EXPECT_GT(parsed_count, 500);
}

TEST(ParseAttendRequestTest, HeaderIsBounded) {
  v1::AttendRequest request;
  request.mutable_seqlens_q()->Resize((kMaxHeaderBytes >> 1) + 1, 1 << 10);
  const auto parsed = attendant::testing::Parse(request);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("max_header_bytes"));
}

TEST(ParseAttendRequestTest, FieldsAreBoundedInNumber) {
  std::string bytes;
  for (int i = 0; i <= (8 << 20); ++i) bytes += "\xca\x3e\x01q";
  const auto parsed = ParseAttendRequest(OneSlice(bytes));
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(parsed.status().message()),
              HasSubstr("max_header_bytes"));
}

TEST(CheckNoUnknownFieldsTest, FindsTheFieldAtAnyDepth) {
  v1::GetServerInfoResponse info;
  EXPECT_TRUE(CheckNoUnknownFields(info).ok());
  info.add_devices();
  info.add_devices()
      ->GetReflection()
      ->MutableUnknownFields(info.mutable_devices(1))
      ->AddVarint(55, 1);
  const absl::Status status = CheckNoUnknownFields(info);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(DetailOf(status)->field(), "devices[1].#55");
}

}  // namespace
}  // namespace attendant::server
