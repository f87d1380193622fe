#include "client/cpp/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

namespace attendant::client::formats {
namespace {

std::vector<std::byte> File(const std::string& header, size_t data) {
  const uint64_t size = header.size();
  std::vector<std::byte> file(8 + header.size() + data);
  std::memcpy(file.data(), &size, 8);
  std::memcpy(file.data() + 8, header.data(), header.size());
  return file;
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  std::vector<FileTensor> tensors(3);
  tensors[0] = {"q",
                ElementType::kBFloat16,
                {2, 3},
                std::vector<std::byte>(12, std::byte{1})};
  tensors[1] = {"empty", ElementType::kFloat32, {0, 3}, {}};
  tensors[2] = {
      "mask", ElementType::kBool, {5}, std::vector<std::byte>(5, std::byte{1})};
  const auto file = FormatSafetensors(tensors);
  ASSERT_TRUE(file.ok()) << file.status();
  const auto read = ParseSafetensors(*file);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3);
  for (size_t t = 0; t < 3; ++t) {
    EXPECT_EQ((*read)[t].name, tensors[t].name);
    EXPECT_EQ((*read)[t].type, tensors[t].type);
    EXPECT_EQ((*read)[t].shape, tensors[t].shape);
    EXPECT_EQ((*read)[t].bytes, tensors[t].bytes);
  }
}

TEST(Safetensors, LeavesMetadataAlone) {
  const auto read = ParseSafetensors(
      File(R"({"__metadata__":{"a":"b"},)"
           R"("q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
           4));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->size(), 1);
}

TEST(Safetensors, RefusesWhatItDoesNotUnderstand) {
  const struct {
    const char* header;
    size_t data;
    const char* why;
  } cases[] = {
      {"", 0, "no JSON"},
      {"[]", 0, "no object"},
      {R"({"q":1})", 0, "no entry"},
      {R"({"q":{"dtype":"F32","shape":[1]}})", 4, "no offsets"},
      {R"({"q":{"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]}})", 4,
       "a type we do not serve"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 8,
       "wrong size"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4,
       "backwards"},
      {R"({"q":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4,
       "negative"},
      {R"({"q":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4,
       "fraction"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "hole"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3, "cut"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 5, "rest"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("k":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "overlap"},
      {R"({"q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("q":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
       4, "twice"},
      {R"({"q":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],)"
       R"("data_offsets":[0,0]}})",
       0, "overflow"},
  };
  for (const auto& entry : cases) {
    EXPECT_FALSE(ParseSafetensors(File(entry.header, entry.data)).ok())
        << entry.why;
  }
}

TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  std::vector<std::byte> file = File("{}", 0);
  EXPECT_TRUE(ParseSafetensors(file).ok());
  for (const uint64_t size : {3ull, 1ull << 40, ~0ull}) {
    std::memcpy(file.data(), &size, 8);
    EXPECT_FALSE(ParseSafetensors(file).ok());
  }
  EXPECT_FALSE(ParseSafetensors(std::span(file).first(7)).ok());
}

TEST(Safetensors, SurvivesRandomDamage) {
  const std::vector<std::byte> good =
      File(R"({"q":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
           R"("k":{"dtype":"BF16","shape":[2,1],"data_offsets":[8,12]}})",
           12);
  ASSERT_TRUE(ParseSafetensors(good).ok());
  std::mt19937 engine(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> file = good;
    for (int flips = 0; flips < 3; ++flips) {
      file[engine() % file.size()] = static_cast<std::byte>(engine());
    }
    (void)ParseSafetensors(file).ok();
  }
}

}  // namespace
}  // namespace attendant::client::formats
