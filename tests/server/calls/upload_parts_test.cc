#include "server/calls/upload_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/server/request_builder.h"
#include "tests/testing/random.h"

namespace attendant::server {
namespace {

using attendant::testing::MakeRequest;
using attendant::testing::RandomBits;
using attendant::testing::RequestOptions;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kAnyFlops = 1e18;
constexpr int64_t kHeadBytes = 8 * 16 * 4;  // of one head of 8 rows

// Heads one after the other, each an item of its own.
RequestOptions ByHeads(int64_t heads) {
  return {.num_q_heads = heads, .num_kv_heads = heads, .heads_first = true};
}

// Every run of the bytes that `range` reads.
std::vector<ByteRange> Reads(const ValidatedRequest& request,
                             const ItemRange& range) {
  std::vector<ByteRange> runs;
  for (const CopyRect& rect : InputCopies(request, range, /*first=*/true)) {
    for (int64_t row = 0; row < rect.height; ++row) {
      const int64_t begin = rect.offset + row * rect.pitch;
      runs.push_back({begin, begin + rect.width});
    }
  }
  return runs;
}

// The block cut at `cuts` random places, in a random order.
std::vector<ByteRange> Chunks(int64_t bytes, int cuts, RandomBits* random) {
  std::vector<int64_t> borders = {0, bytes};
  for (int i = 0; i < cuts; ++i) borders.push_back(random->Below(bytes));
  std::sort(borders.begin(), borders.end());
  std::vector<ByteRange> chunks;
  for (size_t i = 1; i < borders.size(); ++i) {
    if (borders[i] > borders[i - 1]) {
      chunks.push_back({borders[i - 1], borders[i]});
    }
  }
  for (size_t i = chunks.size() - 1; i > 0; --i) {
    std::swap(chunks[i],
              chunks[static_cast<size_t>(random->Below(int64_t(i) + 1))]);
  }
  return chunks;
}

// Items start exactly when the last byte that they read is in place.
void ExpectItemsStartAsTheyCome(const ValidatedRequest& request,
                                const std::vector<ItemRange>& ranges,
                                RandomBits* random) {
  UploadParts parts(request, ranges);
  std::vector<char> there(static_cast<size_t>(request.input_bytes), 0);
  std::vector<int> started(ranges.size(), 0);
  const auto has_all = [&](const ItemRange& range) {
    for (const ByteRange& run : Reads(request, range)) {
      if (std::count(there.begin() + run.begin, there.begin() + run.end, 1) !=
          run.bytes()) {
        return false;
      }
    }
    return true;
  };
  int64_t filled = 0;
  for (const ByteRange& chunk : Chunks(request.input_bytes, 40, random)) {
    std::fill(there.begin() + chunk.begin, there.begin() + chunk.end, 1);
    filled += chunk.bytes();
    const bool complete = filled == request.input_bytes;
    parts.NoteFilled(chunk);
    for (const size_t item : parts.TakeArrived(complete)) ++started.at(item);
    size_t ready = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      const bool has_its_own = has_all(ranges[i]);
      EXPECT_TRUE(started[i] == 0 || has_its_own) << "item " << i;
      EXPECT_LE(started[i], 1) << "item " << i;
      ready += has_its_own;
    }
    const size_t wanted =
        complete ? ranges.size() : std::min(ready, ranges.size() - 1);
    EXPECT_EQ(std::count(started.begin(), started.end(), 1), int64_t(wanted));
  }
}

TEST(UploadParts, AnItemStartsWithItsOwnLastByte) {
  const auto request = MakeRequest(ByHeads(3));
  const auto ranges = CutIntoParts(request->problem, 1, kAnyFlops);
  ASSERT_EQ(ranges.size(), 3u);
  UploadParts parts(*request, ranges);
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
  // The second head of q, k and v, v's but for a byte.
  parts.NoteFilled({kHeadBytes, 2 * kHeadBytes});
  const int64_t k = request->k_offset, v = request->v_offset;
  parts.NoteFilled({k + kHeadBytes, k + 2 * kHeadBytes});
  parts.NoteFilled({v + kHeadBytes, v + 2 * kHeadBytes - 1});
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
  parts.NoteFilled({v + 2 * kHeadBytes - 1, v + 2 * kHeadBytes});
  EXPECT_THAT(parts.TakeArrived(false), ElementsAre(1));
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
}

TEST(UploadParts, TheLastItemWaitsForTheLastByteOfAll) {
  const auto request = MakeRequest(ByHeads(2));
  const auto ranges = CutIntoParts(request->problem, 1, kAnyFlops);
  ASSERT_EQ(ranges.size(), 2u);
  UploadParts parts(*request, ranges);
  parts.NoteFilled({0, request->input_bytes - 1});
  EXPECT_THAT(parts.TakeArrived(false), ElementsAre(0));
  parts.NoteFilled({request->input_bytes - 1, request->input_bytes});
  // Its bytes are all there, but the caller's stream did not say so yet.
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
  EXPECT_THAT(parts.TakeArrived(true), ElementsAre(1));
  EXPECT_THAT(parts.TakeArrived(true), IsEmpty());
}

TEST(UploadParts, BytesThatNoItemReadsAreWaitedForToo) {
  // Keys from the third on are padding.
  RequestOptions options = ByHeads(2);
  options.lens_kv = {3};
  const auto request = MakeRequest(options);
  const auto ranges = CutIntoParts(request->problem, 1, kAnyFlops);
  UploadParts parts(*request, ranges);
  parts.NoteFilled({0, request->k_offset});
  for (const int64_t tensor : {request->k_offset, request->v_offset}) {
    parts.NoteFilled({tensor, tensor + 3 * 16 * 4});
    parts.NoteFilled({tensor + kHeadBytes, tensor + kHeadBytes + 3 * 16 * 4});
  }
  EXPECT_THAT(parts.TakeArrived(false), ElementsAre(0));
  EXPECT_THAT(parts.TakeArrived(true), ElementsAre(1));
}

TEST(UploadParts, ARequestInOnePieceStartsWithTheLastByte) {
  const auto request = MakeRequest({});
  const std::vector<ItemRange> ranges = {{0, 1, 0, 1}};
  UploadParts parts(*request, ranges);
  parts.NoteFilled({0, request->input_bytes});
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
  EXPECT_THAT(parts.TakeArrived(true), ElementsAre(0));
}

TEST(UploadParts, WhatLiesInARegionIsThere) {
  const auto request = MakeRequest(ByHeads(3));
  std::vector<std::byte> elsewhere(static_cast<size_t>(request->input_bytes));
  const struct {
    TensorField field;
    int64_t offset;
  } in_region[] = {{TensorField::kQ, 0},
                   {TensorField::kK, request->k_offset},
                   {TensorField::kV, request->v_offset}};
  for (const auto& [field, offset] : in_region) {
    ValidatedRequest::Image image;
    image.field = field;
    image.block_offset = offset;
    image.block_bytes = 3 * kHeadBytes;
    image.place.host_memory = elsewhere.data();
    request->images.push_back(image);
  }
  const auto ranges = CutIntoParts(request->problem, 1, kAnyFlops);
  UploadParts parts(*request, ranges);
  EXPECT_THAT(parts.TakeArrived(false), ElementsAre(0, 1));
  EXPECT_THAT(parts.TakeArrived(true), ElementsAre(2));
}

TEST(UploadParts, TooManyRunsToWatchAllStartWithTheLastByte) {
  // Each entry reads a run of q, one of k and one of v.
  const auto request =
      MakeRequest({.batch = 1400, .seqlen_q = 1, .seqlen_kv = 1});
  const auto ranges = CutIntoParts(request->problem, 1, kAnyFlops);
  ASSERT_EQ(ranges.size(), 1400u);
  UploadParts parts(*request, ranges);
  parts.NoteFilled({0, request->input_bytes});
  EXPECT_THAT(parts.TakeArrived(false), IsEmpty());
  EXPECT_EQ(parts.TakeArrived(true).size(), ranges.size());
}

TEST(UploadParts, EveryLayoutAndOrderOfChunks) {
  RandomBits random(7);
  for (const bool heads_first : {false, true}) {
    const auto request = MakeRequest({.batch = 3,
                                      .num_q_heads = 4,
                                      .num_kv_heads = 2,
                                      .seqlen_q = 5,
                                      .seqlen_kv = 7,
                                      .head_dim = 9,
                                      .heads_first = heads_first,
                                      .lens_kv = {7, 4, 0}});
    const auto by_heads = CutIntoItems(request->problem, 1, kAnyFlops);
    const auto by_entries = CutIntoItems(request->problem, 6000, kAnyFlops);
    for (int i = 0; i < 10; ++i) {
      ExpectItemsStartAsTheyCome(*request, by_heads, &random);
      ExpectItemsStartAsTheyCome(*request, by_entries, &random);
    }
  }
  const auto rows = MakeRequest({.num_q_heads = 2,
                                 .num_kv_heads = 2,
                                 .seqlen_q = 1600,
                                 .seqlen_kv = 7,
                                 .head_dim = 4});
  const auto by_rows = CutIntoParts(rows->problem, 4096, kAnyFlops);
  ASSERT_EQ(by_rows.size(), 3u);
  for (int i = 0; i < 10; ++i) {
    ExpectItemsStartAsTheyCome(*rows, by_rows, &random);
  }
}

}  // namespace
}  // namespace attendant::server
