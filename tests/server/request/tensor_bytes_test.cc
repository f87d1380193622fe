// Tensor bytes in and out of messages: the codec's second half.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

#include "server/request/wire_codec.h"
#include "tests/testing/wire_bytes.h"

namespace attendant::server {
namespace {

using attendant::testing::GoldenBytes;
using attendant::testing::OneSlice;
using attendant::testing::PlainPool;
using attendant::testing::RandomSlices;
using google::protobuf::util::MessageDifferencer;
using kernels::DataType;

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
