// What must be refused, and what must hold of everything that is not.
#include "tests/testing/malformed_requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <limits>
#include <random>
#include <set>

#include "server/request/errors.h"
#include "tests/server/validate.h"
#include "tests/testing/request_invariants.h"

namespace attendant::server {
namespace {

using attendant::testing::GoodGroupedQkvRequest;
using attendant::testing::GoodPackedRequest;
using attendant::testing::GoodQkvRequest;
using attendant::testing::GoodRequest;
using attendant::testing::MalformedRequest;
using attendant::testing::MalformedRequests;
using attendant::testing::SetTensor;
using ::testing::HasSubstr;

class MalformedRequestTest : public ::testing::TestWithParam<MalformedRequest> {
};

TEST_P(MalformedRequestTest, IsRefusedWithFieldValueAndBound) {
  v1::AttendRequest request = GoodRequest();
  GetParam().mutate(request);
  const absl::Status status = Validate(request).status();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  const auto detail = DetailOf(status);
  ASSERT_TRUE(detail.has_value()) << status;
  EXPECT_EQ(detail->field(), GetParam().field) << status;
  EXPECT_THAT(detail->value(), HasSubstr(GetParam().value)) << status;
  EXPECT_THAT(detail->bound(), HasSubstr(GetParam().bound)) << status;
  EXPECT_LT(ToGrpcStatus(status).error_message().size(), 600u);
}

INSTANTIATE_TEST_SUITE_P(All, MalformedRequestTest,
                         ::testing::ValuesIn(MalformedRequests()),
                         [](const auto& info) { return info.param.name; });

TEST(MalformedRequestsTest, AreManyAndNamedApart) {
  std::set<std::string> names;
  for (const MalformedRequest& request : MalformedRequests()) {
    EXPECT_TRUE(names.insert(request.name).second) << request.name;
  }
  EXPECT_GE(names.size(), 80u);
}

// Sets a random number field of `message`, or of a message within, to a value
// that is likely to matter.
void SetSomeNumber(google::protobuf::Message* message, std::mt19937* random) {
  constexpr int64_t kValues[] = {0,
                                 0,
                                 1,
                                 1,
                                 2,
                                 2,
                                 3,
                                 4,
                                 5,
                                 6,
                                 8,
                                 16,
                                 24,
                                 64,
                                 96,
                                 -1,
                                 255,
                                 1 << 20,
                                 int64_t{1} << 40,
                                 std::numeric_limits<int64_t>::max()};
  const int64_t value = kValues[(*random)() % std::size(kValues)];
  const auto* field = message->GetDescriptor()->field(
      (*random)() % message->GetDescriptor()->field_count());
  const auto* reflection = message->GetReflection();
  using Field = google::protobuf::FieldDescriptor;
  const bool again = (*random)() % 2 == 0;
  switch (field->cpp_type()) {
    case Field::CPPTYPE_MESSAGE:
      // Regions and a mask or qkv from nothing are refused at once.
      if (reflection->HasField(*message, field)) {
        SetSomeNumber(reflection->MutableMessage(message, field), random);
      }
      return;
    case Field::CPPTYPE_INT64:
      if (!field->is_repeated()) {
        reflection->SetInt64(message, field, value);
      } else if (again || reflection->FieldSize(*message, field) == 0) {
        reflection->AddInt64(message, field, value);
      } else {
        const int size = reflection->FieldSize(*message, field);
        reflection->SetRepeatedInt64(message, field, (*random)() % size, value);
      }
      return;
    case Field::CPPTYPE_INT32:
      if (field->is_repeated()) {
        reflection->AddInt32(message, field, static_cast<int32_t>(value));
      }
      return;
    case Field::CPPTYPE_ENUM:
      reflection->SetEnumValue(message, field, (*random)() % 4);
      return;
    case Field::CPPTYPE_BOOL:
      reflection->SetBool(message, field, again);
      return;
    default:
      return;
  }
}

TEST(ValidateRequestTest, WhateverPassesStaysWithinItsBlocks) {
  std::mt19937 random(5);
  v1::AttendRequest masked = GoodRequest();
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {2, 1, 3, 4},
            masked.mutable_mask(), masked.mutable_mask_data());
  v1::AttendRequest strided = GoodRequest();
  for (const int64_t stride : {96, 32, 8, 1}) {
    strided.mutable_q()->add_strides(stride);
  }
  for (const int64_t length : {3, 2}) strided.add_seqlens_q(length);
  const v1::AttendRequest bases[] = {GoodRequest(),    GoodPackedRequest(),
                                     GoodQkvRequest(), GoodGroupedQkvRequest(),
                                     masked,           strided};
  int passed = 0;
  for (int i = 0; i < 40'000; ++i) {
    v1::AttendRequest request = bases[random() % std::size(bases)];
    for (int n = static_cast<int>(random() % 4); n >= 0; --n) {
      SetSomeNumber(&request, &random);
    }
    const auto validated = attendant::testing::ValidateFitted(request, 1 << 20);
    if (!validated.ok()) {
      ASSERT_TRUE(DetailOf(validated.status()).has_value());
      continue;
    }
    ++passed;
    ASSERT_EQ(attendant::testing::InvariantViolation(**validated), "")
        << request.ShortDebugString().substr(0, 2000);
  }
  EXPECT_GT(passed, 5000);
}

}  // namespace
}  // namespace attendant::server
