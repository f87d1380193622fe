#include "client/cpp/cli/bench/bench_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using ::testing::ElementsAre;

TEST(BenchShape, ReadsLettersInAnyOrder) {
  const auto shape = ParseShape("d128h16s8192");
  ASSERT_TRUE(shape.ok()) << shape.status();
  EXPECT_EQ(shape->batch, 1);
  EXPECT_EQ(shape->seqlen_q, 8192);
  EXPECT_EQ(shape->seqlen_k, 8192);
  EXPECT_EQ(shape->num_kv_heads, 16);
  EXPECT_EQ(shape->head_dim_v, 128);
  for (const char* text :
       {"s1h1d64", "b8q1k4096h64g8d128", "s128h128d192v128", "b0s5h1d1"}) {
    EXPECT_EQ(ShapeText(*ParseShape(text)), text);
  }
}

TEST(BenchShape, NamesWhatIsNoShape) {
  for (const char* text :
       {"", "s128", "h16d128", "s128h16", "q1h1d64", "s1s2h1d1", "x1s1h1d1",
        "sh1d1", "s2147483647h2147483647d2147483647", "b2147483647s512h2d1",
        "q2147483647k1h1024d0", "s1h1d1\xc3\xa9", "s-1h1d1", "s99999999999h1d1",
        "1s1h1d1", "s1h1d64,"}) {
    const auto shape = ParseShape(text);
    ASSERT_FALSE(shape.ok()) << text;
    EXPECT_EQ(GetErrorDetail(shape.status())->field, "--shapes");
  }
}

TEST(BenchShape, MakesARequestOfIt) {
  const BenchShape shape = *ParseShape("b2q3k5h4g2d8v16");
  for (const Layout layout : {Layout::kBSHD, Layout::kBHSD, Layout::kTHD}) {
    const auto request =
        MakeBenchRequest(shape, {layout, DataType::kBFloat16, true, true});
    ASSERT_TRUE(request.ok()) << request.status();
    const AttendArgs& args = request->args;
    EXPECT_EQ(args.alignment, CausalAlignment::kBottomRight);
    EXPECT_EQ(args.out.size(), 2 * 3 * 4 * 16 * 2);
    EXPECT_EQ(args.lse.size(), 2 * 4 * 3 * 4);
    if (layout == Layout::kTHD) {
      EXPECT_THAT(args.k.shape, ElementsAre(10, 2, 8));
      EXPECT_THAT(args.cu_seqlens_q, ElementsAre(0, 3, 6));
    } else if (layout == Layout::kBHSD) {
      EXPECT_THAT(args.v.shape, ElementsAre(2, 2, 5, 16));
    } else {
      EXPECT_THAT(args.q.shape, ElementsAre(2, 3, 4, 8));
    }
  }
}

TEST(BenchShape, BordersOfSequencesAreOf32Bits) {
  const BenchShape shape = *ParseShape("b2s1073741824h0d1");
  EXPECT_TRUE(MakeBenchRequest(shape, {}).ok());
  const absl::Status status =
      MakeBenchRequest(shape, {Layout::kTHD, DataType::kFloat16, false, false})
          .status();
  EXPECT_EQ(GetErrorDetail(status)->field, "--shapes") << status;
}

}  // namespace
}  // namespace attendant::client::cli
