#include "client/cpp/ipc_door.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <vector>

#include "client/cpp/cuda/registrations.h"
#include "tests/client/cpp/cuda/fake_gpu_server.h"

namespace attendant::client {
namespace {

using cuda::FakeCuda;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatient{30};
constexpr int64_t kBytes = 1024;  // of a tensor
const std::vector<int64_t> kShape = {1, 16, 2, 8};

class IpcDoorTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto door = OpenIpcDoorWith(server_.target(),
                                {.retry = {.max_attempts = 1}}, gpu_.driver());
    ASSERT_TRUE(door.ok()) << door.status();
    door_ = *std::move(door);
  }

  // q, k, v and out one after the other; q holds 0, 1, 2, ...
  static AttendArgs ArgsIn(std::byte* memory, int64_t offset = 0) {
    AttendArgs args;
    std::byte* q = memory + offset;
    std::vector<float> numbers(kBytes / 4);
    std::iota(numbers.begin(), numbers.end(), 0.0f);
    std::memcpy(q, numbers.data(), kBytes);
    args.q = {q, DataType::kFloat32, kShape, {}};
    args.k = {q + kBytes, DataType::kFloat32, kShape, {}};
    args.v = {q + 2 * kBytes, DataType::kFloat32, kShape, {}};
    args.out = {q + 3 * kBytes, kBytes};
    return args;
  }

  void ExpectEcho(const AttendArgs& args) {
    const auto answer = door_->Attend(args, kPatient);
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->door, "ipc");
    EXPECT_EQ(std::memcmp(answer->out.data, args.q.data, kBytes), 0);
  }

  FakeCuda gpu_;
  FakeGpuServer server_{gpu_};
  std::unique_ptr<Door> door_;
};

TEST_F(IpcDoorTest, TensorsAreNamedAndTheAnswerStaysOnTheGpu) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  const AttendArgs args = ArgsIn(memory);
  const auto answer = door_->Attend(args, kPatient);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->out.data, args.out.data());
  EXPECT_EQ(answer->out.cuda_device, 0);
  std::vector<std::byte> host(kBytes);
  ASSERT_TRUE(door_->CopyToHost(answer->out, host.data()).ok());
  EXPECT_EQ(std::memcmp(host.data(), memory, kBytes), 0);
  const v1::AttendRequest request = server_.last_request();
  EXPECT_TRUE(request.q_data().empty() && request.v_data().empty());
  EXPECT_EQ(request.v().region().byte_offset(), 2 * kBytes);
  EXPECT_EQ(request.output_region().byte_offset(), 3 * kBytes);
}

TEST_F(IpcDoorTest, TimeThatIsNoneOrOverOrWithoutEnd) {
  const AttendArgs args = ArgsIn(gpu_.Allocate(4 * kBytes));
  using std::chrono::nanoseconds;
  const absl::Status none = door_->Attend(args, nanoseconds(0)).status();
  EXPECT_TRUE(absl::IsInvalidArgument(none)) << none;
  const absl::Status over = door_->Attend(args, nanoseconds(1)).status();
  EXPECT_TRUE(over.ok() || absl::IsDeadlineExceeded(over)) << over;
  const auto answer = door_->Attend(args, nanoseconds::max());
  EXPECT_TRUE(answer.ok()) << answer.status();
}

TEST_F(IpcDoorTest, AnAllocationIsRegisteredOnceAndReleasedAtTheEnd) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  for (int call = 0; call < 3; ++call) ExpectEcho(ArgsIn(memory));
  EXPECT_EQ(server_.registered(), 1);
  EXPECT_EQ(server_.released(), 0);
  door_.reset();
  EXPECT_EQ(server_.released(), 1);
}

// The new allocation lies where the old one did, with the same size.
TEST_F(IpcDoorTest, FreedAndReusedMemoryIsExportedAnew) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  ExpectEcho(ArgsIn(memory));
  gpu_.Reuse(memory);
  ExpectEcho(ArgsIn(memory));
  EXPECT_EQ(server_.registered(), 2);
  EXPECT_EQ(server_.released(), 1);
}

TEST_F(IpcDoorTest, KeepsABoundedNumberTheLastUsedOnes) {
  constexpr int kMost = cuda::Registrations::kMost;
  std::byte* first = gpu_.Allocate(4 * kBytes);
  for (int i = 0; i < kMost + 3; ++i) {
    ExpectEcho(ArgsIn(gpu_.Allocate(4 * kBytes)));
    ExpectEcho(ArgsIn(first));
  }
  EXPECT_EQ(server_.registered(), kMost + 4) << "the first was kept";
  EXPECT_EQ(server_.regions(), size_t{kMost});
}

TEST_F(IpcDoorTest, MemoryThatCannotBeExportedIsNamed) {
  const auto expect = [&](FakeCuda::Kind kind, const char* text) {
    std::byte* memory = gpu_.Allocate(4 * kBytes, kind);
    const absl::Status status =
        door_->Attend(ArgsIn(memory), kPatient).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_EQ(GetErrorDetail(status)->field, "q.data");
  };
  expect(FakeCuda::Kind::kPool, "cudaMallocAsync");
  expect(FakeCuda::Kind::kManaged, "cudaMallocManaged");
  expect(FakeCuda::Kind::kSegments, "expandable_segments:False");
  ExpectEcho(ArgsIn(gpu_.Allocate(4 * kBytes)));
}

TEST_F(IpcDoorTest, TensorsWhereNoRegionCanNameThemAreRefused) {
  std::byte* memory = gpu_.Allocate(5 * kBytes);
  absl::Status status = door_->Attend(ArgsIn(memory, 16), kPatient).status();
  EXPECT_EQ(GetErrorDetail(status)->field, "q.data");
  EXPECT_THAT(GetErrorDetail(status)->value, HasSubstr("at byte 16"));
  AttendArgs args = ArgsIn(memory);
  args.v.shape[1] *= 4;
  status = door_->Attend(args, kPatient).status();
  EXPECT_EQ(GetErrorDetail(status)->field, "v.data");
  ExpectEcho(ArgsIn(memory, 256));
}

TEST_F(IpcDoorTest, RegistersAgainWhatTheServerForgot) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  ExpectEcho(ArgsIn(memory));
  server_.ForgetRegions();
  ExpectEcho(ArgsIn(memory));
  EXPECT_EQ(server_.registered(), 2);
}

TEST_F(IpcDoorTest, WaitsForTheCallersStreamIfThereIsOne) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  AttendArgs args = ArgsIn(memory);
  ExpectEcho(args);
  EXPECT_TRUE(gpu_.synchronized().empty());
  int stream = 0;
  args.cuda_stream = &stream;
  ExpectEcho(args);
  EXPECT_THAT(gpu_.synchronized(), ElementsAre(&stream));
}

TEST_F(IpcDoorTest, HostTensorsGoThereAndTheAnswerComesBack) {
  std::vector<std::byte> host(4 * kBytes);
  AttendArgs args = ArgsIn(host.data());
  ExpectEcho(args);
  EXPECT_TRUE(server_.last_request().q().has_region());
  args.out = {};
  ExpectEcho(args);
  EXPECT_EQ(gpu_.allocations(), 1) << "memory is used again";
  door_.reset();
  EXPECT_EQ(gpu_.allocations(), 0);
}

TEST_F(IpcDoorTest, PreparedTensorsLieOnTheGpu) {
  std::vector<std::byte> host(4 * kBytes);
  const auto prepared = door_->Prepare(ArgsIn(host.data()));
  ASSERT_TRUE(prepared.ok()) << prepared.status();
  EXPECT_NE(prepared->q.data, host.data());
  ExpectEcho(*prepared);
  ExpectEcho(*prepared);
  EXPECT_EQ(server_.registered(), 1);
}

TEST_F(IpcDoorTest, ACallThatMayStillRunKeepsItsMemory) {
  std::byte* memory = gpu_.Allocate(4 * kBytes);
  ExpectEcho(ArgsIn(memory));
  server_.busy_lists = 2;
  server_.fail = [] {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "late");
  };
  EXPECT_FALSE(door_->Attend(ArgsIn(memory), kPatient).ok());
  EXPECT_EQ(server_.busy_lists, 0) << "it waited until nobody uses it";
  EXPECT_EQ(server_.released(), 1);
  server_.fail = nullptr;
  ExpectEcho(ArgsIn(memory));
}

}  // namespace
}  // namespace attendant::client
