#include "server/request/errors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attendant::server {
namespace {

using ::testing::HasSubstr;

v1::RpcStatus Details(const grpc::Status& status) {
  v1::RpcStatus details;
  EXPECT_TRUE(details.ParseFromString(status.error_details()));
  return details;
}

TEST(ErrorsTest, InvalidFieldNamesFieldValueAndBound) {
  const absl::Status status = InvalidField("q.shape[3]", "257", "1..256");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "q.shape[3] is 257, must be 1..256");
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value());
  EXPECT_EQ(detail->field(), "q.shape[3]");
  EXPECT_EQ(detail->value(), "257");
  EXPECT_EQ(detail->bound(), "1..256");
}

TEST(ErrorsTest, AnEmptyValueIsSaidToBeEmpty) {
  const absl::Status status = InvalidField("q.datatype", "", "FP32");
  EXPECT_EQ(status.message(), "q.datatype is empty, must be FP32");
  EXPECT_EQ(DetailOf(status)->value(), "empty");
}

TEST(ErrorsTest, AnErrorWithoutAFieldReadsAsASentence) {
  EXPECT_EQ(
      InvalidField("", "work of 2e16 FLOP", "at most 1e16 FLOP").message(),
      "work of 2e16 FLOP, must be at most 1e16 FLOP");
}

TEST(ErrorsTest, ToGrpcStatusCarriesTheDetail) {
  const grpc::Status status =
      ToGrpcStatus(UnimplementedField("dropout_p", "0.1", "0"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  const v1::RpcStatus details = Details(status);
  EXPECT_EQ(details.code(), 12);
  EXPECT_EQ(details.message(), status.error_message());
  ASSERT_EQ(details.details_size(), 1);
  v1::ErrorDetail detail;
  ASSERT_TRUE(details.details(0).UnpackTo(&detail));
  EXPECT_EQ(detail.field(), "dropout_p");
  EXPECT_EQ(details.details(0).type_url(),
            "type.googleapis.com/attendant.v1.ErrorDetail");
}

TEST(ErrorsTest, AnErrorAboutNoFieldSaysWhatItIsAbout) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  const grpc::Status status =
      ToGrpcStatus(absl::DeadlineExceededError("too late"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_EQ(status.error_message(), "too late");
  const auto field_of = [](const absl::Status& error) {
    v1::ErrorDetail detail;
    EXPECT_TRUE(Details(ToGrpcStatus(error)).details(0).UnpackTo(&detail));
    EXPECT_EQ(detail.value(), std::string(error.message()));
    EXPECT_FALSE(detail.bound().empty());
    return detail.field();
  };
  EXPECT_EQ(field_of(absl::DeadlineExceededError("too late")), "deadline");
  EXPECT_EQ(field_of(absl::UnavailableError("draining")), "server");
  EXPECT_EQ(field_of(absl::InternalError("a device error")), "server");
  EXPECT_EQ(field_of(absl::CancelledError("gone")), "call");
  EXPECT_EQ(field_of(absl::InvalidArgumentError("no message")), "message");
}

TEST(ErrorsTest, OverloadedCarriesTheRetryHint) {
  const absl::Status status =
      Overloaded("queued_requests", "1024", "at most 1023", 250);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(RetryPushbackMs(status), 250);
  EXPECT_EQ(DetailOf(status)->field(), "queued_requests");
  EXPECT_EQ(RetryPushbackMs(InvalidField("a", "b", "c")), -1);
  EXPECT_EQ(RetryPushbackMs(absl::OkStatus()), -1);
}

TEST(ErrorsTest, WithDetailKeepsTheText) {
  const absl::Status status =
      WithDetail(absl::UnimplementedError("no kernel"), "", "this", "that");
  EXPECT_EQ(status.message(), "no kernel");
  EXPECT_EQ(DetailOf(status)->bound(), "that");
  EXPECT_FALSE(DetailOf(absl::UnimplementedError("no kernel")).has_value());
}

TEST(ErrorsTest, ALongValueIsShortenedToFitTheTrailers) {
  const grpc::Status status = ToGrpcStatus(
      InvalidField("request_id", std::string(100'000, 'x'), "short"));
  EXPECT_LT(status.error_message().size(), 300u);
  EXPECT_LT(status.error_details().size(), 700u);
  EXPECT_THAT(status.error_message(), HasSubstr("100000 bytes"));
}

TEST(ErrorsTest, SoIsTheNameOfAFieldThatTheCallerMadeUp) {
  const grpc::Status status = ToGrpcStatus(
      UnimplementedField(std::string(100'000, 'x'), "set", "unset"));
  EXPECT_LT(status.error_message().size(), 300u);
  EXPECT_LT(status.error_details().size(), 700u);
}

TEST(ErrorsTest, ItIsCutBetweenCharacters) {
  for (const std::string character : {"\u00e9", "\u20ac", "\U0001f600"}) {
    std::string text;
    while (text.size() < 600) text += character;
    for (const size_t before : {0, 1, 2, 3}) {
      const std::string value = std::string(before, 'x') + text;
      const grpc::Status status =
          ToGrpcStatus(InvalidField(value, value, "short"));
      v1::ErrorDetail detail;  // protobuf reads no half characters
      ASSERT_TRUE(Details(status).details(0).UnpackTo(&detail));
      const size_t end = detail.value().find("...");
      EXPECT_EQ((end - before) % character.size(), 0u);
      EXPECT_GT(end, 150u);
      EXPECT_EQ(detail.field(), detail.value());
    }
  }
}

}  // namespace
}  // namespace attendant::server
