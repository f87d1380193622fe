#include "client/cpp/merge_partials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "client/cpp/client_error.h"

namespace attendant::client {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One head of attention over keys [begin, end) of logits and values, as a
// partial of `rows` rows.
struct Shard {
  std::vector<float> out, lse;
  Partial partial(int64_t rows, int64_t dim) const {
    return {{out.data(), DataType::kFloat32, {1, rows, 1, dim}, {}},
            {lse.data(), DataType::kFloat32, {1, 1, rows}, {}}};
  }
};

struct Row {
  std::vector<double> logits;
  std::vector<std::vector<double>> values;
};

void AppendTo(Shard* shard, const Row& row, size_t begin, size_t end,
              double sink = -kInf) {
  double sum = std::exp(sink), lse = 0;
  std::vector<double> out(row.values[0].size());
  for (size_t j = begin; j < end; ++j) {
    const double p = std::exp(row.logits[j]);
    sum += p;
    lse += p;
    for (size_t d = 0; d < out.size(); ++d) out[d] += p * row.values[j][d];
  }
  for (double value : out) {
    shard->out.push_back(static_cast<float>(sum > 0 ? value / sum : 0));
  }
  shard->lse.push_back(static_cast<float>(std::log(lse)));
}

Row RandomRow(size_t keys, size_t dim, std::mt19937* engine) {
  std::normal_distribution<double> normal(0, 3);
  Row row;
  for (size_t j = 0; j < keys; ++j) {
    row.logits.push_back(normal(*engine));
    row.values.emplace_back();
    for (size_t d = 0; d < dim; ++d) row.values[j].push_back(normal(*engine));
  }
  return row;
}

TEST(MergePartials, OfShardsIsTheWhole) {
  constexpr int64_t kRows = 5, kDim = 7;
  std::mt19937 engine(1);
  Shard a, b, c, whole;
  for (int64_t i = 0; i < kRows; ++i) {
    const Row row = RandomRow(3136, kDim, &engine);
    AppendTo(&a, row, 0, 3072);
    AppendTo(&b, row, 3072, 3136);
    AppendTo(&c, row, 0, 0);  // an empty shard
    AppendTo(&whole, row, 0, 3136);
  }
  c.out.assign(c.out.size(), std::nanf(""));  // must not matter
  const Partial partials[] = {a.partial(kRows, kDim), c.partial(kRows, kDim),
                              b.partial(kRows, kDim)};
  const auto merged = MergePartials(Layout::kBSHD, partials);
  ASSERT_TRUE(merged.ok()) << merged.status();
  for (int64_t e = 0; e < kRows * kDim; ++e) {
    EXPECT_NEAR(merged->out.as<float>()[e], whole.out[e], 2e-6);
  }
  for (int64_t i = 0; i < kRows; ++i) {
    EXPECT_NEAR(merged->lse.as<float>()[i], whole.lse[i], 2e-6);
  }
}

TEST(MergePartials, OfNothingIsNothing) {
  const float out[2] = {0, 0}, lse[1] = {-kInf};
  const Partial empty{{out, DataType::kFloat32, {1, 1, 1, 2}, {}},
                      {lse, DataType::kFloat32, {1, 1, 1}, {}}};
  const Partial partials[] = {empty, empty};
  const auto merged = MergePartials(Layout::kBSHD, partials);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->out.as<float>()[0], 0);
  EXPECT_EQ(merged->out.as<float>()[1], 0);
  EXPECT_EQ(merged->lse.as<float>()[0], -kInf);
}

TEST(MergePartials, WithNothingIsBitwiseTheOther) {
  // What an empty row's O holds must not matter, not even a NaN.
  const float nothing[2] = {std::nanf(""), kInf}, nothing_lse[1] = {-kInf};
  const float some[2] = {0.1f, -0.0f}, some_lse[1] = {1e-7f};
  const Partial partials[] = {
      {{nothing, DataType::kFloat32, {1, 1, 1, 2}, {}},
       {nothing_lse, DataType::kFloat32, {1, 1, 1}, {}}},
      {{some, DataType::kFloat32, {1, 1, 1, 2}, {}},
       {some_lse, DataType::kFloat32, {1, 1, 1}, {}}}};
  const auto merged = MergePartials(Layout::kBHSD, partials);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(std::memcmp(merged->out.data, some, sizeof(some)), 0);
  EXPECT_EQ(std::memcmp(merged->lse.data, some_lse, sizeof(some_lse)), 0);
}

TEST(MergePartials, KeepsAVisibleNaN) {
  const float nan[1] = {std::nanf("")}, nan_lse[1] = {std::nanf("")};
  const float one[1] = {1}, one_lse[1] = {0};
  for (const bool nan_first : {true, false}) {
    const Partial a{{nan, DataType::kFloat32, {1, 1, 1}, {}},
                    {nan_lse, DataType::kFloat32, {1, 1}, {}}};
    const Partial b{{one, DataType::kFloat32, {1, 1, 1}, {}},
                    {one_lse, DataType::kFloat32, {1, 1}, {}}};
    const Partial partials[] = {nan_first ? a : b, nan_first ? b : a};
    const auto merged = MergePartials(Layout::kTHD, partials);
    ASSERT_TRUE(merged.ok());
    EXPECT_TRUE(std::isnan(merged->out.as<float>()[0]));
    EXPECT_TRUE(std::isnan(merged->lse.as<float>()[0]));
  }
}

TEST(MergePartials, FindsRowsInEveryLayout) {
  // 2 heads, 3 rows, dim 1. O is 10 * head + row; LSE 0 everywhere in one
  // partial, -inf but for (head 1, row 2) in the other, whose O is 100.
  const auto run = [](Layout layout, std::vector<int64_t> shape,
                      std::vector<int64_t> lse_shape, std::vector<float> out) {
    std::vector<float> other(6, 100), lse(6, 0), other_lse(6, -kInf);
    other_lse[1 * 3 + 2] = 0;
    const Partial partials[] = {
        {{out.data(), DataType::kFloat32, shape, {}},
         {lse.data(), DataType::kFloat32, lse_shape, {}}},
        {{other.data(), DataType::kFloat32, shape, {}},
         {other_lse.data(), DataType::kFloat32, lse_shape, {}}}};
    const auto merged = MergePartials(layout, partials);
    EXPECT_TRUE(merged.ok()) << merged.status();
    const float* values = merged->out.as<float>();
    return std::vector<float>(values, values + 6);
  };
  const std::vector<float> by_row = {0, 10, 1, 11, 2, 12};
  const std::vector<float> merged_by_row = {0, 10, 1, 11, 2, 56};
  EXPECT_EQ(run(Layout::kBSHD, {1, 3, 2, 1}, {1, 2, 3}, by_row), merged_by_row);
  EXPECT_EQ(run(Layout::kTHD, {3, 2, 1}, {2, 3}, by_row), merged_by_row);
  EXPECT_EQ(run(Layout::kBHSD, {1, 2, 3, 1}, {1, 2, 3}, {0, 1, 2, 10, 11, 12}),
            std::vector<float>({0, 1, 2, 10, 11, 56}));
}

TEST(MergePartials, NamesWhatDoesNotFit) {
  const float data[4] = {};
  const Partial good{{data, DataType::kFloat32, {1, 2, 1, 1}, {}},
                     {data, DataType::kFloat32, {1, 1, 2}, {}}};
  Partial half = good, short_lse = good;
  half.out.dtype = DataType::kFloat16;
  short_lse.lse.shape = {1, 1, 1};
  const struct {
    std::vector<Partial> partials;
    const char* field;
  } cases[] = {{{}, "partials"},
               {{good, half}, "partials[1].out.dtype"},
               {{good, short_lse}, "partials[1].lse.shape"}};
  for (const auto& entry : cases) {
    const auto merged = MergePartials(Layout::kBSHD, entry.partials);
    ASSERT_FALSE(merged.ok());
    EXPECT_EQ(GetErrorDetail(merged.status())->field, entry.field);
  }
}

TEST(ApplySinks, IsOneMoreLogitInTheDenominator) {
  // q = 0, 3 keys, V = 4, sink 0: 3, not 4. The second head has no sink.
  auto out = AllocateTensor(DataType::kFloat32, {1, 2, 2, 1});
  auto lse = AllocateTensor(DataType::kFloat32, {1, 2, 2});
  ASSERT_TRUE(out.ok() && lse.ok());
  const float lse_values[] = {std::log(3.0f), -kInf, std::log(3.0f), -kInf};
  const float out_values[] = {4, 4, 0, 0};  // row 1 sees nothing
  std::memcpy(out->data, out_values, sizeof(out_values));
  std::memcpy(lse->data, lse_values, sizeof(lse_values));
  const float sinks[] = {0, -kInf};
  ASSERT_TRUE(ApplySinks(Layout::kBSHD, sinks, *out, *lse).ok());
  EXPECT_FLOAT_EQ(out->as<float>()[0], 3);
  EXPECT_EQ(out->as<float>()[1], 4);
  EXPECT_EQ(out->as<float>()[2], 0);
  const float one[] = {0};
  EXPECT_FALSE(ApplySinks(Layout::kBSHD, one, *out, *lse).ok());
}

}  // namespace
}  // namespace attendant::client
