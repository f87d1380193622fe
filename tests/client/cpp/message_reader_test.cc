#include "client/cpp/message_reader.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "attendant/v1/attention.pb.h"

namespace attendant::client {
namespace {

// `bytes` in slices of `size` each.
grpc::ByteBuffer InSlices(const std::string& bytes, size_t size) {
  std::vector<grpc::Slice> slices;
  for (size_t at = 0; at < bytes.size(); at += size) {
    slices.emplace_back(bytes.substr(at, size));
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

v1::AttendResponse Response() {
  v1::AttendResponse response;
  response.set_request_id("abc");
  response.mutable_exposed()->set_total_ns(123456789);
  response.set_output_data(std::string(300, 'x'));
  response.set_lse_data("lse!");
  return response;
}

TEST(MessageReader, SplitsAMessageHoweverItIsSliced) {
  const std::string bytes = Response().SerializeAsString();
  for (size_t size = 1; size <= bytes.size(); ++size) {
    const auto reader = MessageReader::Create(InSlices(bytes, size));
    ASSERT_TRUE(reader.ok());
    const auto fields = reader->Split(1001);
    ASSERT_TRUE(fields.ok()) << fields.status();
    v1::AttendResponse rest;
    ASSERT_TRUE(rest.ParseFromString(fields->rest));
    EXPECT_EQ(rest.request_id(), "abc");
    EXPECT_EQ(rest.exposed().total_ns(), 123456789);
    EXPECT_TRUE(rest.output_data().empty());
    std::string data(300, ' ');
    ASSERT_EQ(fields->set_apart.at(1001).num_bytes, 300);
    reader->Copy(fields->set_apart.at(1001),
                 reinterpret_cast<std::byte*>(data.data()));
    EXPECT_EQ(data, std::string(300, 'x'));
    EXPECT_EQ(fields->set_apart.at(1002).num_bytes, 4);
  }
}

TEST(MessageReader, TakesFieldsInAnyOrderAndTheLastOfTwo) {
  v1::AttendResponse first, second;
  first.set_output_data("old");
  second.set_output_data("new");
  v1::AttendResponse id;
  id.set_request_id("late");
  const std::string bytes = first.SerializeAsString() +
                            second.SerializeAsString() + id.SerializeAsString();
  const auto reader = MessageReader::Create(InSlices(bytes, 3));
  ASSERT_TRUE(reader.ok());
  const auto fields = reader->Split(1001);
  ASSERT_TRUE(fields.ok());
  std::string data(3, ' ');
  reader->Copy(fields->set_apart.at(1001),
               reinterpret_cast<std::byte*>(data.data()));
  EXPECT_EQ(data, "new");
  EXPECT_FALSE(fields->rest.empty());
}

TEST(MessageReader, RefusesEveryTruncation) {
  const std::string bytes = Response().SerializeAsString();
  int refused = 0;
  for (size_t size = 0; size < bytes.size(); ++size) {
    const auto reader =
        MessageReader::Create(InSlices(bytes.substr(0, size), 7));
    ASSERT_TRUE(reader.ok());
    v1::AttendResponse whole;
    const bool is_message = whole.ParseFromString(bytes.substr(0, size));
    EXPECT_EQ(reader->Split(1001).ok(), is_message) << size;
    refused += is_message ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
}

TEST(MessageReader, RefusesWhatIsNoMessage) {
  for (const std::string& bytes :
       {std::string("\x00\x01", 2), std::string("\x0f"), std::string("\x0b"),
        std::string(11, '\xff'), std::string("\x0a\xff\xff\xff\xff\x0f")}) {
    const auto reader = MessageReader::Create(InSlices(bytes, 2));
    ASSERT_TRUE(reader.ok());
    EXPECT_FALSE(reader->Split(1001).ok());
  }
}

TEST(MessageReader, ReadsAnEmptyMessage) {
  const auto reader = MessageReader::Create(grpc::ByteBuffer());
  ASSERT_TRUE(reader.ok());
  EXPECT_TRUE(reader->Split(1001).ok());
}

}  // namespace
}  // namespace attendant::client
