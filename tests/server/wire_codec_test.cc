#include "server/wire_codec.h"

#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "server/errors.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using attendant::testing::GoldenBytes;
using attendant::testing::GoldenRequest;
using attendant::testing::GoodRequest;
using attendant::testing::OneSlice;
using attendant::testing::PlainPool;
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

// Elements of every dtype whose bytes are a ramp.
std::string Ramp(size_t bytes) {
  std::string ramp(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i)
    ramp[i] = static_cast<char>(i * 37 + i / 251);
  return ramp;
}

TEST(CopyTensorBytesTest, ConvertsAcrossOddSlicesExactly) {
  std::mt19937 random(3);
  constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16,
                                 DataType::kBFloat16};
  const std::string payload = Ramp(6000);
  const std::string bytes = "12345" + payload + "tail";
  for (const DataType from : kTypes) {
    for (const DataType to : kTypes) {
      const int64_t count = 6000 / kernels::SizeOf(from);
      std::string expected(count * kernels::SizeOf(to), '\0');
      std::string got = expected;
      if (from == to) {
        expected = payload;
      } else {
        for (int64_t i = 0; i < count; ++i) {
          kernels::StoreFromFloat(
              expected.data(), to, i,
              kernels::LoadAsFloat(payload.data(), from, i));
        }
      }
      for (int i = 0; i < 50; ++i) {
        const grpc::ByteBuffer message = RandomSlices(bytes, &random);
        ASSERT_TRUE(CopyTensorBytes(message, 5, 6000, from, to,
                                    reinterpret_cast<std::byte*>(got.data()))
                        .ok());
        ASSERT_EQ(got, expected)
            << kernels::Name(from) << " to " << kernels::Name(to);
      }
    }
  }
}

TEST(CopyTensorBytesTest, ThreadsCopyDisjointRanges) {
  std::mt19937 random(4);
  constexpr int kThreads = 4;
  const std::string payload = Ramp(1 << 20);
  const grpc::ByteBuffer message = RandomSlices(payload, &random);
  std::string got(payload.size(), '\0');
  std::vector<std::thread> threads;
  const int64_t part = static_cast<int64_t>(payload.size()) / kThreads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      EXPECT_TRUE(
          CopyTensorBytes(message, t * part, part, DataType::kFloat16,
                          DataType::kFloat16,
                          reinterpret_cast<std::byte*>(got.data()) + t * part)
              .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got, payload);
}

TEST(CopyTensorBytesTest, RefusesRangesOutsideTheMessage) {
  const grpc::ByteBuffer message = OneSlice("12345678");
  std::byte out[64];
  const auto copy = [&](int64_t offset, int64_t bytes, DataType to) {
    return CopyTensorBytes(message, offset, bytes, DataType::kFloat32, to, out)
        .ok();
  };
  EXPECT_TRUE(copy(0, 8, DataType::kFloat32));
  EXPECT_TRUE(copy(8, 0, DataType::kFloat32));
  EXPECT_TRUE(copy(3, 5, DataType::kFloat32));  // any bytes when they are equal
  EXPECT_TRUE(copy(4, 4, DataType::kBFloat16));
  EXPECT_FALSE(copy(4, 3, DataType::kBFloat16));
  EXPECT_FALSE(copy(1, 8, DataType::kFloat32));
  EXPECT_FALSE(copy(-1, 4, DataType::kFloat32));
  EXPECT_FALSE(copy(4, INT64_MAX, DataType::kFloat32));
}

v1::AttendResponse GoldenResponseHeader() {
  v1::AttendResponse header;
  header.set_request_id("golden-1");
  v1::TensorSpec* output = header.mutable_output();
  output->set_dtype(v1::DATA_TYPE_FP32);
  output->set_layout(v1::LAYOUT_BSHD);
  for (const int64_t size : {1, 2, 1, 1}) output->add_shape(size);
  header.mutable_lse()->set_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t size : {1, 1, 2}) header.mutable_lse()->add_shape(size);
  header.mutable_served_by()->set_backend(v1::BACKEND_CPU);
  header.mutable_served_by()->set_kernel("cpu");
  header.mutable_served_by()->set_compute_dtype(v1::DATA_TYPE_FP32);
  v1::StageTimes* exposed = header.mutable_exposed();
  exposed->set_receive_ns(1000);
  exposed->set_queue_ns(200);
  exposed->set_kernel_ns(3000);
  exposed->set_send_ns(40);
  exposed->set_total_ns(4240);
  *header.mutable_busy() = *exposed;
  header.mutable_batch()->set_requests(1);
  header.mutable_batch()->set_tokens(2);
  header.mutable_memory()->set_workspace_bytes(512);
  header.mutable_memory()->set_input_bytes(768);
  header.mutable_memory()->set_output_bytes(264);
  return header;
}

std::shared_ptr<HostBlock> Block(PlainPool* pool, int64_t bytes) {
  auto block = pool->Allocate(bytes);
  std::memset(block->data(), 0x5a, bytes);
  return std::make_shared<HostBlock>(*std::move(block));
}

TEST(EncodeAttendResponseTest, GoldenBytesAreTheGoldenResponse) {
  PlainPool pool;
  std::shared_ptr<HostBlock> block = Block(&pool, 264);
  const float out[] = {1.5f, 3.0f};
  const float lse[] = {0.69314718f, 1.09861229f};
  std::memcpy(block->data(), out, sizeof(out));
  std::memcpy(block->data() + 256, lse, sizeof(lse));
  const grpc::ByteBuffer buffer =
      EncodeAttendResponse(GoldenResponseHeader(), block, 8, 256, 8);
  const std::string golden = GoldenBytes("attend_response.hex");
  EXPECT_EQ(attendant::testing::BytesOf(buffer), golden);
  v1::AttendResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(golden));
  v1::AttendResponse expected = GoldenResponseHeader();
  expected.set_output_data(out, sizeof(out));
  expected.set_lse_data(lse, sizeof(lse));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, expected));
}

TEST(EncodeAttendResponseTest, BlockLivesUntilTheLastByteIsSent) {
  PlainPool pool;
  std::shared_ptr<HostBlock> block = Block(&pool, 4096);
  const std::byte* data = block->data();
  auto buffer = std::make_unique<grpc::ByteBuffer>(
      EncodeAttendResponse({}, std::move(block), 2048, 2048, 2048));
  EXPECT_EQ(pool.used_bytes(), 4096);
  {
    std::vector<grpc::Slice> slices;
    ASSERT_TRUE(buffer->Dump(&slices).ok());
    ASSERT_EQ(slices.size(), 4u);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(slices[1].begin()), data);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(slices[3].begin()),
              data + 2048);
  }
  buffer.reset();
  EXPECT_EQ(pool.used_bytes(), 0);
}

TEST(EncodeAttendResponseTest, EmptyOutputsNeedNoBlock) {
  v1::AttendResponse header;
  header.set_request_id("empty");
  const grpc::ByteBuffer buffer =
      EncodeAttendResponse(header, nullptr, 0, 0, 0);
  v1::AttendResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(attendant::testing::BytesOf(buffer)));
  EXPECT_TRUE(MessageDifferencer::Equals(parsed, header));
}

TEST(EncodeAttendResponseTest, LseAloneParses) {
  PlainPool pool;
  const grpc::ByteBuffer buffer =
      EncodeAttendResponse({}, Block(&pool, 512), 0, 256, 12);
  v1::AttendResponse parsed;
  ASSERT_TRUE(parsed.ParseFromString(attendant::testing::BytesOf(buffer)));
  EXPECT_TRUE(parsed.output_data().empty());
  EXPECT_EQ(parsed.lse_data(), std::string(12, 0x5a));
}

}  // namespace
}  // namespace attendant::server
