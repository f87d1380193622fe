#include "client/cpp/formats/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace attendant::client::formats {
namespace {

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

// A version 1 file with this header text and `data` bytes of zeros.
std::vector<std::byte> File(const std::string& header, size_t data) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text += static_cast<char>(header.size() & 0xff);
  text += static_cast<char>(header.size() >> 8);
  return Bytes(text + header + std::string(data, '\0'));
}

TEST(Npy, ReadsBackWhatItWrote) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{}, {0}, {3}, {2, 0, 4}, {1, 2, 3, 4, 5}}) {
    FileTensor tensor;
    tensor.type = ElementType::kFloat16;
    tensor.shape = shape;
    tensor.bytes.resize(static_cast<size_t>(*CheckedBytes(tensor.type, shape)),
                        std::byte{0x3c});
    const auto file = FormatNpy(tensor);
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((file->size() - tensor.bytes.size()) % 64, 0);
    const auto read = ParseNpy(*file);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->type, tensor.type);
    EXPECT_EQ(read->shape, shape);
    EXPECT_EQ(read->bytes, tensor.bytes);
  }
}

TEST(Npy, ReadsHeadersAsNumpyHasWrittenThem) {
  for (const char* header :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }   \n",
        "{\"shape\":(2,),\"descr\":\"<f4\",\"fortran_order\":False}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2)}"}) {
    const auto read = ParseNpy(File(header, 8));
    EXPECT_TRUE(read.ok()) << header << read.status();
  }
}

TEST(Npy, RefusesWhatItDoesNotUnderstand) {
  const struct {
    const char* header;
    size_t data;
    const char* why;
  } cases[] = {
      {"{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}", 8, "'>f4'"},
      {"{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", 8, "object"},
      {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", 8,
       "structured"},
      {"{'descr': '<f4', 'fortran_order': True, 'shape': (2,)}", 8, "Fortran"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, "short"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9, "long"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "-2"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (2 2)}", 16, "2 2"},
      {"{'descr': '<f4', 'fortran_order': False, "
       "'shape': (99999999999999999999,)}",
       8, "overflow"},
      {"{'descr': '<f4', 'fortran_order': False, "
       "'shape': (4294967296, 4294967296, 4294967296)}",
       0, "overflow of the product"},
      {"{'descr': '<f4', 'fortran_order': False}", 4, "no shape"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, "
       "'shape': ()}",
       4, "twice"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': ()} x", 4, "rest"},
      {"", 0, "empty"},
  };
  for (const auto& entry : cases) {
    EXPECT_FALSE(ParseNpy(File(entry.header, entry.data)).ok()) << entry.why;
  }
  EXPECT_FALSE(ParseNpy(Bytes("NUMPY, not")).ok());
  EXPECT_FALSE(ParseNpy({}).ok());
}

TEST(Npy, RefusesEveryTruncation) {
  FileTensor tensor;
  tensor.shape = {2, 2};
  tensor.bytes.resize(16);
  const auto file = FormatNpy(tensor);
  ASSERT_TRUE(file.ok());
  for (size_t size = 0; size < file->size(); ++size) {
    EXPECT_FALSE(ParseNpy(std::span(*file).first(size)).ok()) << size;
  }
}

TEST(Npy, SaysThatNumpyHasNoBf16) {
  FileTensor tensor;
  tensor.type = ElementType::kBFloat16;
  EXPECT_FALSE(FormatNpy(tensor).ok());
}

}  // namespace
}  // namespace attendant::client::formats
