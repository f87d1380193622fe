#include "kernels/cpu/decode_fetch.h"

#include <gtest/gtest.h>

namespace attendant::kernels::cpu {
namespace {

const char* At(int64_t address) {
  return reinterpret_cast<const char*>(address);
}

TEST(RowsAheadTest, FetchesWholeRowsOfOneHead) {
  // bf16, d128: 24 rows of 256 bytes are 6 KB.
  EXPECT_EQ(RowsAhead(At(0), 128, 128, 2).Of(8), At((8 + 24) * 256));
  // fp32, 8 heads side by side: 12 rows, each 4 KB from the last.
  EXPECT_EQ(RowsAhead(At(64), 128, 8 * 128, 4).Of(0), At(64 + 12 * 4096));
}

TEST(RowsAheadTest, StaysWithinItsBoundsForRowsOfAnySize) {
  EXPECT_EQ(RowsAhead(At(0), 1, 1, 2).Of(0), At(256 * 2));
  EXPECT_EQ(RowsAhead(At(0), 4096, 4096, 4).Of(0), At(4 * 4096 * 4));
}

TEST(RowsAheadTest, RowsThatAreOneAndTheSameAreFetchedInPlace) {
  const RowsAhead ahead(At(128), 64, 0, 4);
  EXPECT_EQ(ahead.Of(7), At(128));
  ahead.FetchPages<8>(8);
}

TEST(RowsAheadTest, PagesMayLieAnywhere) {
  RowsAhead(At(0), 128, 1 << 20, 4).FetchPages<4>(0);
  RowsAhead(At(0), 128, -128, 2).FetchPages<8>(16);
}

TEST(BytesAheadOfHeadsTest, AreWholeKeysAndOneAtLeast) {
  EXPECT_EQ(BytesAheadOfHeads(512, 8, 4096), 3 * 4096);
  EXPECT_EQ(BytesAheadOfHeads(256, 3, 768), 16 * 768);
  EXPECT_EQ(BytesAheadOfHeads(4096, 8, 32768), 32768);
}

}  // namespace
}  // namespace attendant::kernels::cpu
