#include "client/cpp/tensor_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<float> Numbers(size_t count) {
  std::vector<float> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  return numbers;
}

std::vector<float> Sent(const TensorBytes& bytes) {
  std::vector<float> sent;
  for (const auto& piece : bytes.pieces) {
    const auto* values = reinterpret_cast<const float*>(piece.data());
    sent.insert(sent.end(), values, values + piece.size() / sizeof(float));
  }
  return sent;
}

TEST(TensorBytes, SendsAContiguousTensorFromWhereItLies) {
  const std::vector<float> data = Numbers(24);
  const auto bytes =
      BytesOf("q", {data.data(), DataType::kFloat32, {1, 2, 3, 4}, {}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  ASSERT_EQ(bytes->pieces.size(), 1);
  EXPECT_EQ(static_cast<const void*>(bytes->pieces[0].data()), data.data());
  EXPECT_EQ(bytes->num_bytes, 96);
  EXPECT_THAT(bytes->strides, IsEmpty());
}

TEST(TensorBytes, SendsAPermutedDenseTensorFromWhereItLies) {
  const std::vector<float> data = Numbers(24);
  const TensorView view{
      data.data(), DataType::kFloat32, {1, 3, 2, 4}, {24, 4, 12, 1}};
  const auto bytes = BytesOf("q", view);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  ASSERT_EQ(bytes->pieces.size(), 1);
  EXPECT_EQ(static_cast<const void*>(bytes->pieces[0].data()), data.data());
  EXPECT_EQ(bytes->strides, view.strides);
}

TEST(TensorBytes, LeavesOutWhatLiesInTheGaps) {
  const std::vector<float> data = Numbers(24);
  // Columns 1 and 2 of [6, 4].
  const auto bytes =
      BytesOf("q", {data.data() + 1, DataType::kFloat32, {6, 2}, {4, 1}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(Sent(*bytes),
              ElementsAre(1, 2, 5, 6, 9, 10, 13, 14, 17, 18, 21, 22));
  EXPECT_THAT(bytes->strides, ElementsAre(2, 1));
}

TEST(TensorBytes, SendsLongRunsWithGapsWithoutACopy) {
  const std::vector<float> data = Numbers(3 * 4096);
  const auto bytes =
      BytesOf("q", {data.data(), DataType::kFloat32, {3, 2048}, {4096, 1}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  ASSERT_EQ(bytes->pieces.size(), 3);
  EXPECT_EQ(static_cast<const void*>(bytes->pieces[2].data()), &data[8192]);
  EXPECT_TRUE(bytes->packed.empty());
  EXPECT_EQ(bytes->num_bytes, 3 * 2048 * 4);
}

TEST(TensorBytes, SendsRepeatedDimensionsOnce) {
  const std::vector<float> data = Numbers(8);
  const auto bytes = BytesOf(
      "k", {data.data(), DataType::kFloat32, {5, 2, 3, 4}, {0, 4, 0, 1}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(Sent(*bytes), data);
  EXPECT_THAT(bytes->strides, ElementsAre(0, 4, 0, 1));
}

TEST(TensorBytes, GathersAndRepeatsAtOnce) {
  const std::vector<float> data = Numbers(12);
  const auto bytes =
      BytesOf("k", {data.data(), DataType::kFloat32, {7, 3, 2}, {0, 4, 1}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(Sent(*bytes), ElementsAre(0, 1, 4, 5, 8, 9));
  EXPECT_THAT(bytes->strides, ElementsAre(0, 2, 1));
}

TEST(TensorBytes, CopiesOverlappingRowsApart) {
  const std::vector<float> data = Numbers(5);
  const auto bytes =
      BytesOf("k", {data.data(), DataType::kFloat32, {3, 3}, {1, 1}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_THAT(Sent(*bytes), ElementsAre(0, 1, 2, 1, 2, 3, 2, 3, 4));
}

TEST(TensorBytes, CountsBitsByRows) {
  const std::vector<unsigned char> data(64);
  const auto bytes =
      BytesOf("mask", {data.data(), DataType::kBoolBits, {1, 1, 5, 9}, {}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->num_bytes, 10);
}

TEST(TensorBytes, IsEmptyForNoElements) {
  const auto bytes =
      BytesOf("q", {nullptr, DataType::kFloat32, {1, 0, 3, 4}, {}});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(bytes->num_bytes, 0);
  EXPECT_THAT(bytes->pieces, IsEmpty());
}

TEST(TensorBytes, RefusesViewsThatNameNoMemory) {
  const float data[4] = {};
  const struct {
    TensorView view;
    const char* field;
  } cases[] = {
      {{nullptr, DataType::kFloat32, {2}, {}}, "q.data"},
      {{data, DataType::kFloat32, {-1, 2}, {}}, "q.shape"},
      {{data, DataType::kFloat32, {2, 2}, {1}}, "q.strides"},
      {{data, DataType::kFloat32, {2, 2}, {-2, 1}}, "q.strides[0]"},
      {{data, DataType::kFloat32, {2, 2}, {1, 2}}, "q.strides[1]"},
      {{data, DataType::kFloat32, {9, 2}, {int64_t{1} << 60, 1}},
       "q.strides[0]"},
      {{data, DataType::kBoolBits, {2, 2}, {2, 1}}, "q.strides[0]"},
  };
  for (const auto& entry : cases) {
    const auto bytes = BytesOf("q", entry.view);
    ASSERT_FALSE(bytes.ok()) << entry.field;
    const auto detail = GetErrorDetail(bytes.status());
    ASSERT_TRUE(detail.has_value());
    EXPECT_EQ(detail->field, entry.field);
  }
}

}  // namespace
}  // namespace attendant::client
