// Tensors in regions through a real server: the inline answer's bits by every
// kind, abuse refused by name, nothing leaked.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "client/cpp/door.h"
#include "server/regions/region_registry.h"
#include "tests/integration/mixed_problems.h"
#include "tests/integration/region_road.h"
#include "tests/integration/wire_problem.h"
#include "tests/testing/malformed_requests.h"
#include "tests/testing/stream_call.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kRegionBytes = int64_t{8} << 20;

server::ServerOptions RegionServerOptions() {
  server::ServerOptions options = SmallServerOptions();
  options.regions.buffers = options.regions.posix = true;
  options.regions.socket = RoadSocket();
  options.regions.max_bytes = int64_t{256} << 20;
  if (TestsOnCuda()) options.engine.device_pool_bytes = int64_t{1} << 30;
  return options;
}

// Of this process, which is the server's.
int64_t OpenDescriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}
// Mappings of at least a region's size.
int64_t LargeMappings(int64_t bytes) {
  std::ifstream maps("/proc/self/maps");
  int64_t count = 0;
  for (std::string line; std::getline(maps, line);) {
    uint64_t begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) == 2 &&
        end - begin == static_cast<uint64_t>(bytes)) {
      ++count;
    }
  }
  return count;
}

class RegionRoadTest : public ::testing::TestWithParam<Road> {
 protected:
  static std::vector<HostProblem> Problems() {
    std::vector<HostProblem> problems;
    for (const ProblemOptions& options : MixedProblems()) {
      problems.emplace_back(options);
    }
    return problems;
  }
  RealServer server_{RegionServerOptions()};
};

TEST_P(RegionRoadTest, EveryLayoutAndOptionHasTheInlineAnswersBits) {
  RegionRoad road(&server_, GetParam(), kRegionBytes);
  for (HostProblem& problem : Problems()) {
    SCOPED_TRACE(Describe(problem));
    v1::AttendResponse reply;
    const grpc::Status status = road.Attend(ToWire(problem), &reply);
    ASSERT_TRUE(status.ok()) << status.error_message();
    ASSERT_TRUE(FromWire(reply, &problem));
    EXPECT_TRUE(MatchesOracle(problem));
  }
}

// A tensor whose bytes are sent after all.
void SendInline(const v1::TensorSpec& inline_spec, const std::string& bytes,
                v1::TensorSpec* spec, std::string* data) {
  *spec = inline_spec;
  *data = bytes;
}

// Everything in regions; K and V alone; everything but K and V.
TEST_P(RegionRoadTest, AStreamNamesWhatLiesInRegions) {
  RegionRoad road(&server_, GetParam(), kRegionBytes);
  int served = 0;
  for (HostProblem& problem : Problems()) {
    SCOPED_TRACE(Describe(problem));
    const v1::AttendRequest inlined = ToWire(problem);
    v1::AttendResponse expected;
    ASSERT_TRUE(server_.Attend(inlined, &expected).ok());
    for (int part = 0; part < 3; ++part) {
      v1::AttendRequest request = road.Moved(inlined);
      if (inlined.has_mask()) {
        SendInline(inlined.mask(), inlined.mask_data(), request.mutable_mask(),
                   request.mutable_mask_data());
      }
      if (part == 1 && inlined.has_q()) {
        SendInline(inlined.q(), inlined.q_data(), request.mutable_q(),
                   request.mutable_q_data());
      }
      if (part == 2 && inlined.has_k()) {
        SendInline(inlined.k(), inlined.k_data(), request.mutable_k(),
                   request.mutable_k_data());
        SendInline(inlined.v(), inlined.v_data(), request.mutable_v(),
                   request.mutable_v_data());
      }
      const auto bytes = static_cast<int64_t>(expected.output_data().size());
      if (part == 0) {
        v1::Region* region = request.mutable_output_region();
        region->set_name(road.name());
        region->set_byte_offset(kRegionBytes / 2);
        region->set_byte_length(bytes);
      }
      v1::AttendResponse reply;
      const grpc::Status status =
          AttendByStreams({&server_.stub()}, request,
                          {.chunk_bytes = 64, .owner = road.owner()}, &reply);
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
        EXPECT_THAT(status.error_message(), HasSubstr("by Attend all are"));
        continue;
      }
      ASSERT_TRUE(status.ok()) << part << " " << status.error_message();
      ++served;
      if (part == 0) {
        EXPECT_TRUE(reply.output_data().empty());
        reply.set_output_data(road.Read(kRegionBytes / 2, bytes));
      }
      EXPECT_TRUE(reply.output_data() == expected.output_data()) << part;
      EXPECT_TRUE(reply.lse_data() == expected.lse_data()) << part;
    }
  }
  // POSIX memory is always copied.
  EXPECT_EQ(served > 20, GetParam() != Road::kPosix) << served;
}

// Its bytes are there already.
TEST_P(RegionRoadTest, AStreamTakesNoChunkOfATensorInARegion) {
  if (TestsOnCuda()) GTEST_SKIP() << "the request is fp32";
  if (GetParam() == Road::kPosix) GTEST_SKIP() << "not by streams";
  RegionRoad road(&server_, GetParam(), kRegionBytes);
  v1::AttendRequest request = GoodRequest();
  const v1::AttendRequest moved = road.Moved(request);
  *request.mutable_k() = moved.k();
  v1::AttendResponse reply;
  const grpc::Status status =
      AttendByStreams({&server_.stub()}, request,
                      {.chunk_bytes = 64, .owner = road.owner()}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("in no region"));
}

TEST_P(RegionRoadTest, OneContextServesManyQueries) {
  if (TestsOnCuda()) GTEST_SKIP() << "the request is fp32";
  RegionRoad road(&server_, GetParam(), kRegionBytes);
  const v1::AttendRequest moved = road.Moved(GoodRequest());
  for (char fill = 0; fill < 5; ++fill) {
    v1::AttendRequest request = GoodRequest();
    request.mutable_q_data()->assign(request.q_data().size(), fill);
    v1::AttendResponse expected, reply;
    ASSERT_TRUE(server_.Attend(request, &expected).ok());
    *request.mutable_k() = moved.k();
    *request.mutable_v() = moved.v();
    request.clear_k_data();
    request.clear_v_data();
    ASSERT_TRUE(road.AttendRaw(request, &reply).ok());
    EXPECT_EQ(reply.output_data(), expected.output_data());
    EXPECT_EQ(reply.lse_data(), expected.lse_data());
  }
}

TEST_P(RegionRoadTest, AnotherOwnersRegionIsNoRegion) {
  if (TestsOnCuda()) GTEST_SKIP() << "the request is fp32";
  RegionRoad mine(&server_, GetParam(), kRegionBytes);
  RegionRoad other(&server_, GetParam(), kRegionBytes);
  v1::AttendResponse reply;
  const grpc::Status status =
      other.AttendRaw(mine.Moved(GoodRequest()), &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(status.error_message(), Not(HasSubstr(mine.name())));
  EXPECT_EQ(server_.Attend(mine.Moved(GoodRequest()), &reply).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT)
      << "no owner at all";
}

// A buffer is the server's own memory, so another owner may have had it before.
TEST_P(RegionRoadTest, ANewBufferShowsNothingOfAFormerOwner) {
  if (GetParam() != Road::kHostBuffer && GetParam() != Road::kDeviceBuffer) {
    GTEST_SKIP() << "the caller's own memory";
  }
  for (int turn = 0; turn < 4; ++turn) {
    RegionRoad buffer(&server_, GetParam(), kRegionBytes);
    EXPECT_EQ(buffer.Read(0, kRegionBytes).find_first_not_of('\0'),
              std::string::npos);
    buffer.Write(0, std::string(kRegionBytes, '\x5e'));
  }
}

TEST_P(RegionRoadTest, ReleasedInUseByEightThreadsNothingIsLeft) {
  if (TestsOnCuda()) GTEST_SKIP() << "the request is fp32";
  // Another size than anything else maps.
  constexpr int64_t kBytes = kRegionBytes + (int64_t{4096} * 3);
  { RegionRoad once(&server_, GetParam(), kBytes); }
  const int64_t descriptors = OpenDescriptors();
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&] {
        for (int round = 0; round < 5; ++round) {
          auto road =
              std::make_unique<RegionRoad>(&server_, GetParam(), kBytes);
          const v1::AttendRequest request = road->Moved(GoodRequest());
          std::jthread user([&] {
            for (int i = 0; i < 10; ++i) {
              v1::AttendResponse reply;
              const grpc::Status status = road->AttendRaw(request, &reply);
              EXPECT_TRUE(status.ok() ||
                          status.error_code() == grpc::StatusCode::NOT_FOUND)
                  << status.error_message();
            }
          });
          grpc::ClientContext context;
          context.AddMetadata(server::kRegionOwnerMetadata, road->owner());
          v1::ReleaseRequest release;
          release.set_name(road->name());
          v1::ReleaseResponse released;
          EXPECT_TRUE(
              road->regions().Release(&context, release, &released).ok());
          user.join();
          road->Forget();
        }
      });
    }
  }
  EXPECT_EQ(LargeMappings(kBytes), 0);
  EXPECT_THAT(server_.server().MetricsText(),
              HasSubstr(std::string("attendant_region_bytes{kind=\"") +
                        RoadName(GetParam()) + "\"} 0"));
  EXPECT_LE(OpenDescriptors(), descriptors + 16) << "connections apart";
}

std::vector<Road> Roads() {
  std::vector<Road> roads = {Road::kHostBuffer, Road::kMemfd, Road::kPosix};
  if (TestsOnCuda()) roads.push_back(Road::kDeviceBuffer);
  return roads;
}

INSTANTIATE_TEST_SUITE_P(Roads, RegionRoadTest, ::testing::ValuesIn(Roads()),
                         [](const auto& info) {
                           return std::string(RoadName(info.param));
                         });

TEST(RegionsTest, TheShmDoorAnswersAsTheUnaryDoorDoes) {
  RealServer server(RegionServerOptions());
  const auto shm = client::OpenDoor("shm", server.address(), {});
  const auto unary = client::OpenDoor("unary", server.address(), {});
  ASSERT_TRUE(shm.ok() && unary.ok()) << shm.status();
  std::vector<uint16_t> q(2 * 33 * 4 * 64, 0x3c00), kv(2 * 50 * 2 * 64);
  for (size_t i = 0; i < kv.size(); ++i) {
    kv[i] = static_cast<uint16_t>(0x3000 + i % 0x0fff);
  }
  client::AttendArgs args;
  args.q = {q.data(), client::DataType::kFloat16, {2, 33, 4, 64}, {}};
  args.k = args.v = {kv.data(), client::DataType::kFloat16, {2, 50, 2, 64}, {}};
  args.return_lse = true;
  const auto expected = (*unary)->Attend(args, std::chrono::seconds(30));
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto prepared = (*shm)->Prepare(args);
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  for (const client::AttendArgs& each : {args, args, *prepared, *prepared}) {
    const auto result = (*shm)->Attend(each, std::chrono::seconds(30));
    ASSERT_TRUE(result.ok()) << result.status();
    ASSERT_EQ(result->out.num_bytes, expected->out.num_bytes);
    EXPECT_EQ(std::memcmp(result->out.data, expected->out.data,
                          expected->out.num_bytes),
              0);
    EXPECT_EQ(std::memcmp(result->lse.data, expected->lse.data,
                          expected->lse.num_bytes),
              0);
  }
}

TEST(RegionsTest, AreOffUnlessAskedFor) {
  RealServer server;
  const auto stub =
      v1::RegionService::NewStub(ConnectedChannel(server.address()));
  grpc::ClientContext context;
  v1::ListResponse reply;
  EXPECT_EQ(stub->List(&context, {}, &reply).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST(RegionsTest, ServerInfoTellsKindsAndBounds) {
  RealServer server(RegionServerOptions());
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  ASSERT_TRUE(server.stub().GetServerInfo(&context, {}, &info).ok());
  EXPECT_EQ(info.region_kinds(0), "host_buffer");
  EXPECT_EQ(info.bounds().max_region_bytes(), int64_t{256} << 20);
  EXPECT_EQ(info.bounds().max_regions(), 1024);
}

TEST(RegionsTest, WritesOutsideARegionAreRefused) {
  RealServer server(RegionServerOptions());
  RegionRoad road(&server, Road::kHostBuffer, 4096);
  std::string said;
  const auto write = [&](const std::vector<v1::WriteRequest>& chunks) {
    grpc::ClientContext context;
    context.AddMetadata(server::kRegionOwnerMetadata, road.owner());
    v1::WriteResponse reply;
    const auto writer = road.regions().Write(&context, &reply);
    for (const v1::WriteRequest& chunk : chunks) writer->Write(chunk);
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    said = status.error_message();
    return status.error_code();
  };
  v1::WriteRequest chunk;
  chunk.set_data("data");
  EXPECT_EQ(write({chunk}), grpc::StatusCode::INVALID_ARGUMENT);  // no name
  chunk.set_name("../x");
  EXPECT_EQ(write({chunk}), grpc::StatusCode::NOT_FOUND);
  chunk.set_name(road.name());
  for (const int64_t offset :
       {int64_t{-1}, int64_t{4093}, std::numeric_limits<int64_t>::max()}) {
    chunk.set_byte_offset(offset);
    EXPECT_EQ(write({chunk}), grpc::StatusCode::INVALID_ARGUMENT) << offset;
    EXPECT_THAT(said, HasSubstr(", of 4 bytes, must be within the region's"));
  }
  chunk.set_byte_offset(4092);
  EXPECT_EQ(write({chunk}), grpc::StatusCode::OK);
  EXPECT_EQ(road.Read(4092, 4), "data");
  v1::WriteRequest next;
  next.set_data("x");
  EXPECT_EQ(write({chunk, next}), grpc::StatusCode::INVALID_ARGUMENT);
}

TEST(RegionsTest, ManyConnectionsFillOneBuffer) {
  RealServer server(RegionServerOptions());
  RegionRoad road(&server, Road::kHostBuffer, kRegionBytes);
  constexpr int64_t kPart = kRegionBytes / 8;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        RegionRoad::Write(server.address(), road.owner(), road.name(),
                          t * kPart,
                          std::string(kPart, static_cast<char>('a' + t)));
      });
    }
  }
  for (int t = 0; t < 8; ++t) {
    EXPECT_EQ(road.Read(t * kPart, kPart),
              std::string(kPart, static_cast<char>('a' + t)));
  }
}

}  // namespace
}  // namespace attendant::testing
