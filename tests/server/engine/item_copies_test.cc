#include "server/engine/item_copies.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/server/request_builder.h"

namespace attendant::server {
namespace {

using attendant::testing::MakeRequest;
using attendant::testing::RequestOptions;

// How often each byte of a block is copied when a request is cut to the end.
std::vector<int> CopiesOf(const ValidatedRequest& request, bool input) {
  const int64_t bytes =
      input ? request.input_bytes : request.output_block_bytes();
  std::vector<int> times(bytes, 0);
  bool first = true;
  for (const ItemRange& range : CutIntoItems(request.problem, 1, 1e18)) {
    const auto rects = input ? InputCopies(request, range, first)
                             : OutputCopies(request, range);
    first = false;
    for (const CopyRect& rect : rects) {
      EXPECT_GE(rect.pitch, rect.width);
      for (int64_t row = 0; row < rect.height; ++row) {
        for (int64_t i = 0; i < rect.width; ++i) {
          ++times.at(rect.offset + row * rect.pitch + i);
        }
      }
    }
  }
  return times;
}

// Every byte of [begin, end) is copied `expected` times.
void ExpectCopied(const std::vector<int>& times, int64_t begin, int64_t end,
                  int expected) {
  for (int64_t i = begin; i < end; ++i) {
    ASSERT_EQ(times[i], expected) << "byte " << i;
  }
}

void ExpectAllCopiedOnce(const RequestOptions& options) {
  const auto request = MakeRequest(options);
  const std::vector<int> input = CopiesOf(*request, true);
  const int64_t kv_bytes = request->input_bytes - request->v_offset;
  ExpectCopied(input, 0, request->output_bytes, 1);  // q is as large as O
  ExpectCopied(input, request->k_offset, request->k_offset + kv_bytes, 1);
  ExpectCopied(input, request->v_offset, request->input_bytes, 1);
  const std::vector<int> output = CopiesOf(*request, false);
  ExpectCopied(output, 0, request->output_bytes, 1);
  ExpectCopied(output, request->output_bytes, request->lse_offset, 0);
  ExpectCopied(output, request->lse_offset, request->output_block_bytes(), 1);
}

TEST(ItemCopiesTest, AWholeRequestIsOneRun) {
  const auto request = MakeRequest({.batch = 2, .num_q_heads = 3});
  const ItemRange whole{0, 2, 0, 1};
  const auto rects = InputCopies(*request, whole, true);
  ASSERT_EQ(rects.size(), 1u);
  EXPECT_EQ(TotalBytes(rects), request->input_bytes);
}

TEST(ItemCopiesTest, ItemsCoverEveryLayoutOnce) {
  for (const bool heads_first : {false, true}) {
    ExpectAllCopiedOnce({.batch = 3,
                         .num_q_heads = 6,
                         .num_kv_heads = 3,
                         .seqlen_q = 5,
                         .seqlen_kv = 7,
                         .head_dim = 9,
                         .heads_first = heads_first});
  }
}

TEST(ItemCopiesTest, ItemsCoverPackedSequencesOnce) {
  ExpectAllCopiedOnce({.batch = 4,
                       .num_q_heads = 4,
                       .num_kv_heads = 2,
                       .head_dim = 8,
                       .lens_q = {3, 0, 5, 1},
                       .lens_kv = {2, 4, 6, 1},
                       .packed = true});
}

TEST(ItemCopiesTest, PaddedKeysStayBehindButAllRowsOfOComeBack) {
  const auto request = MakeRequest({.batch = 2,
                                    .seqlen_q = 4,
                                    .seqlen_kv = 8,
                                    .lens_q = {2, 4},
                                    .lens_kv = {3, 5}});
  const std::vector<int> input = CopiesOf(*request, true);
  const int64_t row = 16 * 4;
  ExpectCopied(input, request->k_offset, request->k_offset + 3 * row, 1);
  ExpectCopied(input, request->k_offset + 3 * row, request->k_offset + 8 * row,
               0);
  ExpectCopied(CopiesOf(*request, false), 0, request->output_bytes, 1);
}

TEST(ItemCopiesTest, ARepeatedTensorComesWithTheFirstItemAlone) {
  auto request = MakeRequest({.batch = 4, .num_q_heads = 2, .num_kv_heads = 2});
  request->problem.k.batch_stride = 0;
  request->problem.v.head_stride = 0;
  const int64_t k_bytes = 8 * 2 * 16 * 4;
  const std::vector<int> input = CopiesOf(*request, true);
  ExpectCopied(input, request->k_offset, request->k_offset + k_bytes, 1);
  const ItemRange later{2, 3, 0, 1};
  EXPECT_EQ(TotalBytes(InputCopies(*request, later, false)), 8 * 16 * 4);
}

TEST(ItemCopiesTest, OverlappingRowsAreOneRunForAll) {
  auto request = MakeRequest({.batch = 2});
  request->problem.k.row_stride = 4;  // each row starts within the one before
  const std::vector<int> input = CopiesOf(*request, true);
  ExpectCopied(input, request->k_offset, request->k_offset + (7 * 4 + 16) * 4,
               1);
}

TEST(ItemCopiesTest, TheMaskComesWithTheFirstItem) {
  auto request = MakeRequest({.batch = 2, .num_q_heads = 2, .num_kv_heads = 2});
  request->problem.mask.kind = kernels::MaskKind::kBoolBytes;
  ValidatedRequest::Image image;
  image.field = TensorField::kMask;
  image.block_offset = (request->input_bytes + 255) / 256 * 256;
  image.block_bytes = 100;
  request->input_bytes = image.block_offset + 100;
  request->images.push_back(image);
  ExpectCopied(CopiesOf(*request, true), image.block_offset,
               request->input_bytes, 1);
}

TEST(ItemCopiesTest, ItemsCutByRowsShareKAndV) {
  const auto request = MakeRequest({.num_q_heads = 2,
                                    .num_kv_heads = 2,
                                    .seqlen_q = 1600,
                                    .seqlen_kv = 7,
                                    .head_dim = 4});
  const auto parts = CutIntoParts(request->problem, 4096, 1e18);
  ASSERT_EQ(parts.size(), 3u);
  std::vector<int> input(request->input_bytes, 0);
  std::vector<int> output(request->output_block_bytes(), 0);
  const auto count = [](const std::vector<CopyRect>& rects,
                        std::vector<int>* times) {
    for (const CopyRect& rect : rects) {
      for (int64_t i = 0; i < rect.height * rect.width; ++i) {
        ++times->at(rect.offset + i / rect.width * rect.pitch + i % rect.width);
      }
    }
  };
  bool first = true;
  for (const ItemRange& part : parts) {
    count(InputCopies(*request, part, first, /*brings_kv=*/first), &input);
    count(OutputCopies(*request, part), &output);
    first = false;
  }
  const int64_t kv_bytes = request->input_bytes - request->v_offset;
  ExpectCopied(input, 0, request->output_bytes, 1);
  ExpectCopied(input, request->k_offset, request->k_offset + kv_bytes, 1);
  ExpectCopied(input, request->v_offset, request->input_bytes, 1);
  ExpectCopied(output, 0, request->output_bytes, 1);
  ExpectCopied(output, request->lse_offset, request->output_block_bytes(), 1);
}

}  // namespace
}  // namespace attendant::server
