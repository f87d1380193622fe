#include "client/cpp/formats/zip_archive.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstring>
#include <random>
#include <string>

namespace attendant::client::formats {
namespace {

std::vector<std::byte> Bytes(const std::string& text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

void Put(std::vector<std::byte>* file, size_t at, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) {
    (*file)[at + static_cast<size_t>(i)] =
        static_cast<std::byte>(value >> (8 * i));
  }
}

std::vector<ZipEntry> TwoEntries() {
  return {{"a.npy", Bytes("first")}, {"b.npy", Bytes("")}};
}

// One entry whose stored bytes are replaced by their deflated form.
std::vector<std::byte> Deflated(const std::string& text) {
  std::string packed(compressBound(text.size()) + 16, '\0');
  z_stream stream = {};
  EXPECT_EQ(
      deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
      Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  auto file = FormatZip({{"a", Bytes(packed)}});
  EXPECT_TRUE(file.ok());
  const uLong crc =
      crc32_z(0, reinterpret_cast<const Bytef*>(text.data()), text.size());
  const size_t central = 30 + 1 + packed.size();
  Put(&*file, central + 10, 8, 2);  // deflated
  Put(&*file, central + 16, crc, 4);
  Put(&*file, central + 24, text.size(), 4);
  return *file;
}

TEST(Zip, ReadsBackWhatItWrote) {
  const auto file = FormatZip(TwoEntries());
  ASSERT_TRUE(file.ok());
  const auto entries = ParseZip(*file);
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 2);
  EXPECT_EQ((*entries)[0].name, "a.npy");
  EXPECT_EQ((*entries)[0].bytes, Bytes("first"));
  EXPECT_EQ((*entries)[1].bytes.size(), 0);
}

TEST(Zip, Inflates) {
  const std::string text = std::string(100000, 'x') + "the end";
  const auto entries = ParseZip(Deflated(text));
  ASSERT_TRUE(entries.ok()) << entries.status();
  EXPECT_EQ((*entries)[0].bytes, Bytes(text));
  EXPECT_TRUE(ParseZip(Deflated("")).ok());
}

TEST(Zip, RefusesDeflatedEntriesThatLie) {
  const std::string text(100000, 'x');
  for (const uint64_t claimed : {99999ull, 100001ull, 0xfffffffeull}) {
    std::vector<std::byte> file = Deflated(text);
    const size_t central = file.size() - 22 - 46 - 1;
    Put(&file, central + 24, claimed, 4);
    EXPECT_FALSE(ParseZip(file).ok()) << claimed;
  }
}

TEST(Zip, RefusesAFlippedByteOfItsData) {
  auto file = FormatZip(TwoEntries());
  ASSERT_TRUE(file.ok());
  (*file)[30 + 5] ^= std::byte{1};
  EXPECT_FALSE(ParseZip(*file).ok());
}

TEST(Zip, RefusesEveryTruncation) {
  const auto file = FormatZip(TwoEntries());
  ASSERT_TRUE(file.ok());
  for (size_t size = 0; size < file->size(); ++size) {
    EXPECT_FALSE(ParseZip(std::span(*file).first(size)).ok()) << size;
  }
}

TEST(Zip, RefusesEntriesThatOverlap) {
  const std::string data(1000, 'x');
  auto file = FormatZip({{"a", Bytes(data)}, {"b", Bytes(data)}});
  ASSERT_TRUE(file.ok());
  const size_t local = 31 + data.size();
  const size_t central = 2 * local + 47;
  Put(&*file, central + 42, 0, 4);  // b's local header is a's
  EXPECT_TRUE(ParseZip(*file).ok());
  const auto shorter = FormatZip({{"a", Bytes(data)}});
  // Five central entries of one local one: more bytes than the file has.
  std::vector<std::byte> many(shorter->begin(),
                              shorter->begin() + static_cast<ptrdiff_t>(local));
  for (int e = 0; e < 5; ++e) {
    many.insert(many.end(), shorter->begin() + static_cast<ptrdiff_t>(local),
                shorter->end() - 22);
  }
  many.insert(many.end(), shorter->end() - 22, shorter->end());
  Put(&many, many.size() - 14, 5, 2);
  Put(&many, many.size() - 12, 5, 2);
  EXPECT_FALSE(ParseZip(many).ok());
}

TEST(Zip, SurvivesRandomDamage) {
  const auto good = FormatZip(TwoEntries());
  ASSERT_TRUE(good.ok());
  std::mt19937 engine(1);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> file = *good;
    for (int flips = 0; flips < 3; ++flips) {
      file[engine() % file.size()] = static_cast<std::byte>(engine());
    }
    (void)ParseZip(file).ok();
  }
}

}  // namespace
}  // namespace attendant::client::formats
