// Answers known by hand, through the RPC, in every dtype and layout. With q = 0
// every visible key weighs the same, so that a wrong mask, diagonal, window or
// length shows as a wrong mean. ATTENDANT_TEST_BACKEND=cuda asks a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/integration/probe.h"
#include "tests/integration/real_server.h"
#include "tests/integration/region_road.h"
#include "tests/testing/malformed_requests.h"

namespace attendant::testing {
namespace {

using kernels::DataType;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

server::ServerOptions ProbeServerOptions() {
  server::ServerOptions options = SmallServerOptions();
  if (TestsOnCuda()) options.engine.device_pool_bytes = int64_t{1} << 30;
  options.regions.buffers = options.regions.posix = true;
  options.regions.socket = RoadSocket();
  return options;
}

RealServer& SharedServer() {
  static RealServer server(ProbeServerOptions());
  return server;
}

// One region of each kind that the server serves.
std::vector<std::unique_ptr<RegionRoad>>& SharedRoads() {
  static auto* roads = [] {
    std::vector<Road> kinds = {Road::kHostBuffer, Road::kMemfd, Road::kPosix};
    if (SharedServer().server().engine().device().is_cuda) {
      kinds.push_back(Road::kDeviceBuffer);
    }
    auto* made = new std::vector<std::unique_ptr<RegionRoad>>;
    for (const Road kind : kinds) {
      made->push_back(
          std::make_unique<RegionRoad>(&SharedServer(), kind, 1 << 20));
    }
    return made;
  }();
  return *roads;
}

class ProbesTest
    : public ::testing::TestWithParam<std::tuple<DataType, v1::Layout>> {
 protected:
  void SetUp() override {
    if (dtype() == DataType::kFloat32 &&
        SharedServer().server().engine().device().is_cuda) {
      GTEST_SKIP() << "fp32 is not computed on a GPU";
    }
  }

  DataType dtype() const { return std::get<0>(GetParam()); }
  v1::Layout layout() const { return std::get<1>(GetParam()); }
  bool thd() const { return layout() == v1::LAYOUT_THD; }

  v1::AttendRequest Request(const ProbeSizes& sizes, const ProbeValue& q,
                            const ProbeValue& k, const ProbeValue& v) const {
    return ProbeRequest(dtype(), layout(), sizes, q, k, v);
  }
  v1::AttendRequest CountRequest(const ProbeSizes& sizes) const {
    return Request(sizes, Zero, Zero, RowPlusOne);
  }

  // Sends it and compares O, and LSE if `lse` is not empty.
  void Expect(const v1::AttendRequest& request, const ProbeSizes& sizes,
              const std::vector<float>& out,
              const std::vector<float>& lse = {}) const {
    v1::AttendResponse reply;
    const grpc::Status status = SharedServer().Attend(request, &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ExpectSameByStreams(request, reply);
    const ProbeAnswer answer = ReadAnswer(reply, sizes);
    ExpectNear(answer.out, out, OutTolerance());
    if (!lse.empty()) ExpectNear(answer.lse, lse, LseTolerance());
    // By every kind of region, whose answer is compared bit by bit.
    for (const auto& road : SharedRoads()) {
      v1::AttendResponse by_region;
      const grpc::Status same = road->Attend(request, &by_region);
      ASSERT_TRUE(same.ok()) << same.error_message();
    }
  }

  // One stream, then three whose chunks come in any order: bit for bit.
  static void ExpectSameByStreams(const v1::AttendRequest& request,
                                  const v1::AttendResponse& unary) {
    for (const int streams : {1, 3}) {
      v1::AttendResponse reply;
      const grpc::Status status = SharedServer().AttendByStreams(
          request, streams, {.chunk_bytes = 8, .seed = streams * 7u}, &reply);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(reply.output_data(), unary.output_data());
      EXPECT_EQ(reply.lse_data(), unary.lse_data());
    }
  }

  float OutTolerance() const {
    if (dtype() == DataType::kFloat32) return 1e-5f;
    return dtype() == DataType::kFloat16 ? 2e-3f : 1.6e-2f;
  }
  float LseTolerance() const {
    return dtype() == DataType::kFloat32 ? 1e-5f : 1e-3f;
  }

  static void ExpectNear(const std::vector<float>& got,
                         const std::vector<float>& expected, float tolerance) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isfinite(expected[i])) {
        EXPECT_NEAR(got[i], expected[i],
                    tolerance * std::max(1.0f, std::fabs(expected[i])))
            << "at " << i;
      } else {
        EXPECT_EQ(got[i], expected[i]) << "at " << i;
      }
    }
  }
};

TEST_P(ProbesTest, CausalWithMoreKeysThanQueries) {
  const ProbeSizes sizes = {.len_q = 2, .len_k = 5};
  v1::AttendRequest request = CountRequest(sizes);
  request.set_causal(true);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  Expect(request, sizes, {1, 1.5}, {0, std::log(2.0f)});
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  Expect(request, sizes, {2.5, 3}, {std::log(4.0f), std::log(5.0f)});
}

TEST_P(ProbesTest, CausalWithMoreQueriesThanKeys) {
  const ProbeSizes sizes = {.len_q = 5, .len_k = 2};
  v1::AttendRequest request = CountRequest(sizes);
  request.set_causal(true);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  Expect(request, sizes, {1, 1.5, 1.5, 1.5, 1.5});
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  Expect(request, sizes, {0, 0, 0, 1, 1.5},
         {-kInf, -kInf, -kInf, 0, std::log(2.0f)});
}

TEST_P(ProbesTest, Windows) {
  const ProbeSizes sizes = {.len_q = 5, .len_k = 5};
  v1::AttendRequest request = CountRequest(sizes);
  request.set_window_left(1);
  request.set_window_right(0);
  Expect(request, sizes, {1, 1.5, 2.5, 3.5, 4.5});
  request.set_window_left(2);
  Expect(request, sizes, {1, 1.5, 2, 3, 4});
  request.set_window_left(0);
  Expect(request, sizes, {1, 2, 3, 4, 5}, {0, 0, 0, 0, 0});
  request.set_window_right(1);
  Expect(request, sizes, {1.5, 2.5, 3.5, 4.5, 5});
  request.clear_window_left();
  Expect(request, sizes, {1.5, 2, 2.5, 3, 3});
  request.clear_window_right();
  request.set_window_left(int64_t{1} << 62);
  Expect(request, sizes, {3, 3, 3, 3, 3});
}

TEST_P(ProbesTest, WindowFollowsTheAlignment) {
  const ProbeSizes sizes = {.len_q = 2, .len_k = 5};
  v1::AttendRequest request = CountRequest(sizes);
  request.set_window_left(1);
  request.set_window_right(1);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  Expect(request, sizes, {1.5, 2});
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  Expect(request, sizes, {4, 4.5});
}

TEST_P(ProbesTest, LseIsNatural) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 8};
  Expect(CountRequest(sizes), sizes, {4.5}, {std::log(8.0f)});
}

TEST_P(ProbesTest, ScaleIsOfTheTrueHeadDim) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 2, .head_dim = 80};
  // The logit of key 0 is ln 3: weights 3/4 and 1/4.
  const auto first = [](float value) {
    return [value](int64_t, int64_t i, int64_t, int64_t d) {
      return i == 0 && d == 0 ? value : 0;
    };
  };
  v1::AttendRequest request = Request(
      sizes, first(std::sqrt(80.0f) * std::log(3.0f)), first(1), first(1));
  Expect(request, sizes, {0.75});
  request.set_softmax_scale(0);
  Expect(request, sizes, {0.5}, {std::log(2.0f)});
  request.set_softmax_scale(-1 / std::sqrt(80.0f));
  Expect(request, sizes, {0.25});
}

TEST_P(ProbesTest, SinkIsInTheDenominatorOnly) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 3};
  v1::AttendRequest request =
      Request(sizes, Zero, Zero, [](auto...) { return 4.0f; });
  request.add_sinks(0);
  Expect(request, sizes, {3}, {std::log(3.0f)});
  request.set_sinks(0, -kInf);
  Expect(request, sizes, {4}, {std::log(3.0f)});
}

TEST_P(ProbesTest, SoftcapBoundsTheLogits) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 2};
  const ProbeValue one_hot = [](int64_t, int64_t i, int64_t, int64_t d) {
    return i == 0 && d == 0 ? 1.0f : 0.0f;
  };
  v1::AttendRequest request = Request(
      sizes, [](int64_t, int64_t, int64_t, int64_t) { return 100.0f; }, one_hot,
      one_hot);
  request.set_softmax_scale(1);
  Expect(request, sizes, {1}, {100});
  request.set_softcap(1);
  Expect(request, sizes, {0.731059f});
}

TEST_P(ProbesTest, QueryHeadReadsItsGroupsKvHead) {
  const ProbeSizes sizes = {
      .len_q = 2, .len_k = 3, .q_heads = 6, .kv_heads = 2};
  Expect(Request(sizes, Zero, Zero,
                 [](int64_t, int64_t, int64_t h, int64_t) {
                   return static_cast<float>(h);
                 }),
         sizes, {0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1});
}

TEST_P(ProbesTest, AlibiCountsFromTheDiagonal) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 3};
  v1::AttendRequest request = CountRequest(sizes);
  request.add_alibi_slopes(std::log(2.0f));
  // Distances 2, 1, 0 halve the weight each time: (1 + 2 * 2 + 4 * 3) / 7.
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  Expect(request, sizes, {17.0f / 7}, {std::log(1.75f)});
  request.set_alignment(v1::CAUSAL_ALIGNMENT_TOP_LEFT);
  Expect(request, sizes, {11.0f / 7}, {std::log(1.75f)});
}

TEST_P(ProbesTest, BooleanMaskKeepsWhatIsTrue) {
  const ProbeSizes sizes = {.len_q = 2, .len_k = 11};
  v1::AttendRequest request = CountRequest(sizes);
  SetTensor(v1::DATA_TYPE_BOOL, v1::LAYOUT_UNSPECIFIED, {1, 1, 2, 11},
            request.mutable_mask(), request.mutable_mask_data());
  request.mutable_mask_data()->at(9) = 1;
  Expect(request, sizes, {10, 0}, {0, -kInf});
  request.mutable_mask()->set_dtype(v1::DATA_TYPE_BOOL_BITS);
  request.set_mask_data(std::string("\x00\x02\x81\x00", 4));
  Expect(request, sizes, {10, 4.5}, {0, std::log(2.0f)});
}

TEST_P(ProbesTest, AdditiveMaskIsAdded) {
  const ProbeSizes sizes = {.len_q = 3, .len_k = 2};
  constexpr float kLowest = std::numeric_limits<float>::lowest();
  const float mask[] = {std::log(3.0f), 0, kLowest, kLowest, -kInf, -kInf};
  v1::AttendRequest request = CountRequest(sizes);
  SetTensor(v1::DATA_TYPE_FP32, v1::LAYOUT_UNSPECIFIED, {1, 1, 3, 2},
            request.mutable_mask(), request.mutable_mask_data());
  std::memcpy(request.mutable_mask_data()->data(), mask, sizeof(mask));
  // The lowest float is a number like any other; -inf is none.
  v1::AttendResponse reply;
  ASSERT_TRUE(SharedServer().Attend(request, &reply).ok());
  const ProbeAnswer answer = ReadAnswer(reply, sizes);
  ExpectNear(answer.out, {1.25, 1.5, 0}, OutTolerance());
  EXPECT_NEAR(answer.lse[0], std::log(4.0f), LseTolerance());
  EXPECT_EQ(answer.lse[2], -kInf);
}

TEST_P(ProbesTest, PaddingIsNeverRead) {
  if (thd()) return;  // has none
  const ProbeSizes sizes = {.batch = 2, .len_q = 3, .len_k = 4};
  // Entry 0 is padded on the right, entry 1 on the left, with NaN.
  const auto poisoned = [](int64_t used_in_0, int64_t used_from_in_1,
                           const ProbeValue& value) {
    return [=](int64_t b, int64_t i, int64_t h, int64_t d) {
      const bool used = b == 0 ? i < used_in_0 : i >= used_from_in_1;
      return used ? value(b, i, h, d) : kNan;
    };
  };
  v1::AttendRequest request =
      Request(sizes, poisoned(2, 1, Zero), poisoned(3, 2, Zero),
              poisoned(3, 2, RowPlusOne));
  for (const int64_t length : {2, 2}) request.add_seqlens_q(length);
  for (const int64_t start : {0, 1}) request.add_starts_q(start);
  for (const int64_t length : {3, 2}) request.add_seqlens_k(length);
  for (const int64_t start : {0, 2}) request.add_starts_k(start);
  Expect(request, sizes, {2, 2, 0, 0, 3.5, 3.5},
         {std::log(3.0f), std::log(3.0f), -kInf, -kInf, std::log(2.0f),
          std::log(2.0f)});
  request.set_causal(true);
  request.set_alignment(v1::CAUSAL_ALIGNMENT_BOTTOM_RIGHT);
  Expect(request, sizes, {1.5, 2, 0, 0, 3, 3.5});
}

TEST_P(ProbesTest, EmptySequencesAnswerWithDefinedRows) {
  if (!thd()) {
    const ProbeSizes no_keys = {.batch = 2, .len_q = 2, .len_k = 0};
    Expect(CountRequest(no_keys), no_keys, {0, 0, 0, 0},
           {-kInf, -kInf, -kInf, -kInf});
    const ProbeSizes no_batch = {.batch = 0, .len_q = 2, .len_k = 3};
    Expect(CountRequest(no_batch), no_batch, {});
    return;
  }
  const ProbeSizes sizes = {.len_q = 5, .len_k = 5};
  v1::AttendRequest request = CountRequest(sizes);
  for (auto* list :
       {request.mutable_cu_seqlens_q(), request.mutable_cu_seqlens_k()}) {
    list->Clear();
    for (const int32_t start : {0, 0, 3, 3, 5}) list->Add(start);
  }
  Expect(request, sizes, {2, 2, 2, 4.5, 4.5});
  // A sequence with queries and no keys, and one with keys and no queries.
  request.set_cu_seqlens_k(2, 0);
  request.set_cu_seqlens_k(3, 2);
  Expect(request, sizes, {0, 0, 0, 4, 4});
}

TEST_P(ProbesTest, ExpandedKeysAreReadOnce) {
  const ProbeSizes sizes = {
      .len_q = 1, .len_k = 3, .q_heads = 4, .kv_heads = 4};
  v1::AttendRequest request = CountRequest(sizes);
  // All heads read head 0's rows: 3 rows of 8 and of 1.
  const bool bhsd = layout() == v1::LAYOUT_BHSD;
  const auto expand = [&](int64_t columns, v1::TensorSpec* spec,
                          std::string* data) {
    const std::vector<int64_t> strides =
        thd()  ? std::vector<int64_t>{columns, 0, 1}
        : bhsd ? std::vector<int64_t>{0, 0, columns, 1}
               : std::vector<int64_t>{0, columns, 0, 1};
    for (const int64_t stride : strides) spec->add_strides(stride);
    data->resize(3 * columns * kernels::SizeOf(dtype()));
  };
  expand(8, request.mutable_k(), request.mutable_k_data());
  expand(1, request.mutable_v(), request.mutable_v_data());
  for (int i = 0; i < 3; ++i) {
    kernels::StoreFromFloat(request.mutable_v_data()->data(), dtype(), i,
                            static_cast<float>(i + 1));
  }
  Expect(request, sizes, {2, 2, 2, 2});
}

TEST_P(ProbesTest, EveryHeadDimIsServed) {
  for (const int64_t head_dim : {1, 8, 40, 59, 72, 80, 96, 111, 192, 256}) {
    for (const int64_t head_dim_v : {int64_t{1}, head_dim}) {
      const ProbeSizes sizes = {.len_q = 1,
                                .len_k = 3,
                                .head_dim = head_dim,
                                .head_dim_v = head_dim_v};
      Expect(CountRequest(sizes), sizes, std::vector<float>(head_dim_v, 2));
    }
  }
}

TEST_P(ProbesTest, ComputeAndOutputDtypesAreWhatWasAsked) {
  const ProbeSizes sizes = {.len_q = 1, .len_k = 3};
  v1::AttendRequest request =
      Request(sizes, Zero, Zero, [](auto...) { return 1.00390625f; });
  request.set_output_dtype(v1::DATA_TYPE_FP32);
  request.set_compute_dtype(v1::DATA_TYPE_BF16);
  v1::AttendResponse reply;
  const grpc::Status status = SharedServer().Attend(request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.output().dtype(), v1::DATA_TYPE_FP32);
  EXPECT_EQ(reply.served_by().compute_dtype(), v1::DATA_TYPE_BF16);
  // 1 + 2^-8 is a tie in bf16: rounded to the even 1.
  EXPECT_EQ(ReadAnswer(reply, sizes).out[0], 1.0f);
}

INSTANTIATE_TEST_SUITE_P(
    All, ProbesTest,
    ::testing::Combine(::testing::Values(DataType::kFloat32, DataType::kFloat16,
                                         DataType::kBFloat16),
                       ::testing::Values(v1::LAYOUT_BSHD, v1::LAYOUT_BHSD,
                                         v1::LAYOUT_THD)),
    [](const auto& info) {
      return std::string(kernels::Name(std::get<0>(info.param))) +
             v1::Layout_Name(std::get<1>(info.param)).substr(6);
    });

}  // namespace
}  // namespace attendant::testing
