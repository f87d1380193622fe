#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "client/cpp/c_api/attendant_client_c.h"

namespace {

// As a language may keep an array, in an order of its own.
struct Object {
  const int64_t* shape;
  int32_t flags;
  int32_t rank;
  void* data;
  const void* dtype;
  const void* type;
};

constexpr attendant_array_layout kLayout = {
    offsetof(Object, type),  offsetof(Object, data),  offsetof(Object, rank),
    offsetof(Object, shape), offsetof(Object, dtype), offsetof(Object, flags)};

class ArrayObjectsTest : public testing::Test {
 protected:
  attendant_array Wanted(const Object& object, void** place) {
    return {&object, &type_, &dtype_, shape_.data(), 3, 0x5, place};
  }

  const int type_ = 0, dtype_ = 0, other_ = 0;
  const std::array<int64_t, 3> shape_ = {2, 3, 5};
  std::array<int64_t, 3> own_shape_ = shape_;
  int data_ = 0;
  Object object_ = {own_shape_.data(), 0xf, 3, &data_, &dtype_, &type_};
  void* place_ = nullptr;
};

TEST_F(ArrayObjectsTest, ArraysThatFitTellWhereTheirDataLie) {
  Object second = object_;
  int data = 0;
  second.data = &data;
  void* place = nullptr;
  const attendant_array arrays[] = {Wanted(object_, &place_),
                                    Wanted(second, &place)};
  EXPECT_EQ(attendant_place_arrays(&kLayout, arrays, 2), 1);
  EXPECT_EQ(place_, &data_);
  EXPECT_EQ(place, &data);
}

TEST_F(ArrayObjectsTest, OneThatDiffersInAnythingDoesNotFit) {
  const auto differing = [this](auto change) {
    Object object = object_;
    change(object);
    const attendant_array arrays[] = {Wanted(object_, &place_),
                                      Wanted(object, &place_)};
    return attendant_place_arrays(&kLayout, arrays, 2);
  };
  EXPECT_EQ(differing([](Object&) {}), 1);
  EXPECT_EQ(differing([this](Object& o) { o.dtype = &other_; }), 0);
  EXPECT_EQ(differing([](Object& o) { o.rank = 2; }), 0);
  EXPECT_EQ(differing([](Object& o) { o.flags = 0x4; }), 0);
  const std::array<int64_t, 3> shape = {2, 3, 4};
  EXPECT_EQ(differing([&](Object& o) { o.shape = shape.data(); }), 0);
}

TEST_F(ArrayObjectsTest, OfAnotherTypeNothingElseIsRead) {
  const void* other = &other_;  // an object of one field
  attendant_array_layout layout = kLayout;
  layout.type = 0;
  const attendant_array array = {&other, &type_, &dtype_, shape_.data(),
                                 3,      0,      &place_};
  EXPECT_EQ(attendant_place_arrays(&layout, &array, 1), 0);
  EXPECT_EQ(place_, nullptr);
}

}  // namespace
