#include "server/engine/work_item.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "kernels/row_cut.h"
#include "tests/server/request_builder.h"

namespace attendant::server {
namespace {

using attendant::testing::MakeRequest;
using attendant::testing::RequestOptions;

constexpr double kAnyWork = 1e18;

std::vector<ItemRange> Cut(const RequestOptions& options, int64_t max_bytes,
                           double max_flops = kAnyWork) {
  return CutIntoItems(MakeRequest(options)->problem, max_bytes, max_flops);
}

// Every (batch entry, KV head) belongs to exactly one range.
void ExpectCovers(const std::vector<ItemRange>& items, int64_t batch,
                  int64_t heads) {
  std::vector<int> seen(batch * heads, 0);
  for (const ItemRange& item : items) {
    for (int64_t b = item.batch_begin; b < item.batch_end; ++b) {
      for (int64_t h = item.kv_head_begin; h < item.kv_head_end; ++h) {
        ++seen[b * heads + h];
      }
    }
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
}

TEST(CutIntoItemsTest, ASmallRequestStaysWhole) {
  const auto items =
      Cut({.batch = 3, .num_q_heads = 4, .num_kv_heads = 2}, int64_t{1} << 20);
  ASSERT_EQ(items.size(), 1u);
  ExpectCovers(items, 3, 2);
  EXPECT_EQ(items[0].tokens, 24);
  // q and O 4 heads, k and v 2, 8 rows of 16 floats, 3 entries.
  EXPECT_EQ(items[0].bytes, 3 * 8 * 16 * 4 * (4 + 4 + 2 + 2));
}

TEST(CutIntoItemsTest, CutsBatchEntriesFirst) {
  // One entry: 8 rows x 16 floats x 4 tensors = 2 KiB.
  const auto items = Cut({.batch = 10}, 6000);
  ASSERT_EQ(items.size(), 5u);
  ExpectCovers(items, 10, 1);
  for (const ItemRange& item : items) EXPECT_LE(item.bytes, 6000);
}

TEST(CutIntoItemsTest, CutsHeadsOfALargeEntryOnly) {
  // 4 KV heads of 8 query heads; entry 1 is 64 times as long as the others.
  const auto items = Cut({.batch = 3,
                          .num_q_heads = 8,
                          .num_kv_heads = 4,
                          .seqlen_q = 512,
                          .seqlen_kv = 512,
                          .lens_q = {8, 512, 8},
                          .lens_kv = {8, 512, 8}},
                         256 * 1024);
  ExpectCovers(items, 3, 4);
  ASSERT_EQ(items.size(), 6u);
  EXPECT_EQ(items[0].kv_head_end - items[0].kv_head_begin, 4);
  for (int i = 1; i <= 4; ++i) {
    EXPECT_EQ(items[i].kv_head_end - items[i].kv_head_begin, 1);
    EXPECT_LE(items[i].bytes, 256 * 1024);
  }
}

TEST(CutIntoItemsTest, BoundsWorkToo) {
  const RequestOptions options{
      .batch = 4, .num_q_heads = 6, .num_kv_heads = 6, .seqlen_kv = 256};
  const double flops = MakeRequest(options)->flops;
  const auto items = Cut(options, int64_t{1} << 30, flops / 8);
  ExpectCovers(items, 4, 6);
  double sum = 0;
  for (const ItemRange& item : items) {
    EXPECT_LE(item.flops, flops / 8);
    sum += item.flops;
  }
  EXPECT_DOUBLE_EQ(sum, flops);
}

TEST(CutIntoItemsTest, AFewRowsOfOneHeadAreNotCut) {
  const auto items = Cut({.num_q_heads = 8, .seqlen_kv = 4096}, 1);
  ASSERT_EQ(items.size(), 1u);
  EXPECT_FALSE(items[0].cut_by_rows());
  ExpectCovers(items, 1, 1);
}

// Rows are its only border, whatever the layout.
TEST(CutIntoItemsTest, ManyRowsOfOneHeadAreCutByRows) {
  RequestOptions options{.num_q_heads = 8,
                         .num_kv_heads = 1,
                         .seqlen_q = 4000,
                         .seqlen_kv = 100,
                         .head_dim = 64};
  for (const bool heads_first : {false, true}) {
    options.heads_first = heads_first;
    const auto items = Cut(options, int64_t{4} << 20);
    ASSERT_GE(items.size(), 2u);
    int64_t row = 0;
    for (const ItemRange& item : items) {
      ASSERT_TRUE(item.cut_by_rows());
      EXPECT_EQ(item.row_begin, row);
      EXPECT_EQ(item.row_begin % kernels::kRowCutStep, 0);
      row = item.row_end;
    }
    EXPECT_EQ(row, 4000);
  }
}

TEST(CutIntoItemsTest, NothingToComputeIsOneEmptyItem) {
  EXPECT_EQ(Cut({.batch = 0}, 1 << 20).size(), 1u);
  const auto no_heads = Cut({.num_q_heads = 0, .num_kv_heads = 0}, 1 << 20);
  ASSERT_EQ(no_heads.size(), 1u);
  EXPECT_EQ(no_heads[0].bytes, 0);
}

TEST(CutIntoItemsTest, AMillionUniformEntriesAreCutEvenly) {
  const auto items = Cut({.batch = 1}, 1 << 20);
  RequestOptions options{.batch = 1};
  auto request = MakeRequest(options);
  request->problem.batch = 1 << 20;
  const auto many = CutIntoItems(request->problem, 1 << 20, kAnyWork);
  EXPECT_EQ(many.size(), 2048u);
  EXPECT_EQ(many.back().batch_end, 1 << 20);
}

// Rows of a BSHD entry, each in one range, whole but for the last at steps.
TEST(CutIntoPartsTest, LongRowsOfOuterRowsAreCutByRows) {
  const RequestOptions options{.batch = 2,
                               .num_q_heads = 4,
                               .num_kv_heads = 2,
                               .seqlen_q = 4000,
                               .seqlen_kv = 100,
                               .head_dim = 64};
  const auto parts =
      CutIntoParts(MakeRequest(options)->problem, int64_t{2} << 20, kAnyWork);
  int64_t row = 0, entry = 0;
  for (const ItemRange& part : parts) {
    ASSERT_TRUE(part.cut_by_rows());
    EXPECT_EQ(part.batch_begin, entry);
    EXPECT_EQ(part.batch_end, entry + 1);
    EXPECT_EQ(part.kv_head_end - part.kv_head_begin, 2);
    EXPECT_EQ(part.row_begin, row);
    EXPECT_EQ(part.row_begin % kernels::kRowCutStep, 0);
    row = part.row_end;
    if (row == 4000) row = 0, ++entry;
  }
  EXPECT_EQ(entry, 2);
  EXPECT_GE(parts.size(), 6u);
}

// It is all that remains to be sent when everything has been received.
TEST(CutIntoPartsTest, TheLastPartIsTheSmallest) {
  for (const int64_t seqlen : {1536, 3000, 8192, 8448, 100'000}) {
    const auto request = MakeRequest({.num_q_heads = 16,
                                      .num_kv_heads = 16,
                                      .seqlen_q = seqlen,
                                      .seqlen_kv = 100,
                                      .head_dim = 128});
    for (const int64_t bytes : {2 << 20, 8 << 20}) {
      const auto parts = CutIntoParts(request->problem, bytes, kAnyWork);
      ASSERT_GE(parts.size(), 2u);
      int64_t before = seqlen;
      for (const ItemRange& part : parts) {
        EXPECT_LE(part.row_end - part.row_begin, before);
        before = part.row_end - part.row_begin;
      }
      EXPECT_LE(before, kernels::kRowCutStep * (seqlen < 10'000 ? 1 : 2));
    }
  }
}

TEST(CutIntoPartsTest, OtherRequestsAreCutAsEver) {
  RequestOptions options{.num_q_heads = 4,
                         .num_kv_heads = 4,
                         .seqlen_q = 4000,
                         .seqlen_kv = 4000,
                         .head_dim = 64,
                         .heads_first = true};
  for (const bool left_padded : {false, true}) {
    const auto request = MakeRequest(options);
    if (left_padded) request->problem.sequences[0].q_begin = 1;
    const auto parts =
        CutIntoParts(request->problem, int64_t{1} << 20, kAnyWork);
    ExpectCovers(parts, 1, 4);
    for (const ItemRange& part : parts) EXPECT_FALSE(part.cut_by_rows());
    options.heads_first = false;
  }
}

}  // namespace
}  // namespace attendant::server
