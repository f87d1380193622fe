// Tensors that never leave the GPU: memory of this process, computed in by a
// server process, by CUDA IPC and by VMM handles. With ATTENDANT_TIMES=1 it
// prints what calls took.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <vector>

#include "attendant/v1/region.grpc.pb.h"
#include "client/cpp/attendant_client.h"
#include "client/cpp/shared_tensors.h"
#include "kernels/cuda/device.h"
#include "tests/integration/cuda_export.h"
#include "tests/integration/server_process.h"

namespace attendant::testing {
namespace {

using client::AttendArgs;
using client::Client;
using client::DataType;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kTimeout{30};

std::string SocketPath() {
  return "/tmp/attendant_cuda_regions." + std::to_string(getpid());
}

struct Shape {
  int64_t seqlen, heads, head_dim;
  int64_t Bytes() const { return seqlen * heads * head_dim * 2; }
  // From one tensor to the next: a region's alignment.
  int64_t Step() const { return (Bytes() + 255) / 256 * 256; }
};

// fp16, between 0.5 and 1 or their negatives.
std::vector<uint16_t> RandomHalves(int64_t count) {
  std::vector<uint16_t> values(count);
  std::mt19937 random(7);
  for (uint16_t& value : values) {
    value = static_cast<uint16_t>((random() & 0x83ff) | 0x3800);
  }
  return values;
}

// q, k, v and O of one problem in exported memory, and the unary answer.
class CudaRegionsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (kernels::cuda::CountDevices(&why) == 0) {
      GTEST_SKIP() << "there is no GPU: " << why;
    }
    server_ = std::make_unique<ServerProcess>(std::vector<std::string>{
        "--backend=cuda", "--regions=cuda_ipc,buffers",
        "--region_socket=" + SocketPath(), "--device_pool_bytes=4G"});
    ASSERT_FALSE(server_->grpc_address().empty());
    auto client =
        Client::Create(server_->grpc_address(), {.region_owner = owner_});
    ASSERT_TRUE(client.ok());
    client_ = std::make_unique<Client>(*std::move(client));
    regions_ = v1::RegionService::NewStub(grpc::CreateChannel(
        server_->grpc_address(), grpc::InsecureChannelCredentials()));
  }

  static v1::RegisterCudaIpcRequest RequestFor(const CudaExport& memory) {
    v1::RegisterCudaIpcRequest request;
    request.set_handle(memory.handle());
    request.set_byte_length(memory.bytes());
    request.set_device_uuid(CudaUuid());
    return request;
  }

  grpc::Status RegisterIpc(const v1::RegisterCudaIpcRequest& request,
                           v1::RegionStatus* region) {
    grpc::ClientContext context;
    context.AddMetadata("attendant-owner", owner_);
    return regions_->RegisterCudaIpc(&context, request, region);
  }

  static AttendArgs Args(const Shape& shape, std::byte* q) {
    AttendArgs args;
    args.causal = true;
    const std::vector<int64_t> sizes = {1, shape.seqlen, shape.heads,
                                        shape.head_dim};
    args.q = {q, DataType::kFloat16, sizes, {}};
    args.k = {q + shape.Step(), DataType::kFloat16, sizes, {}};
    args.v = {q + 2 * shape.Step(), DataType::kFloat16, sizes, {}};
    return args;
  }

  // Calls with everything in `memory`, the region `name`, and compares O with
  // the answer to inline tensors.
  void ExpectInlineAnswer(const Shape& shape, const CudaExport& memory,
                          const std::string& name, const char* road) {
    std::vector<uint16_t> host = RandomHalves(3 * shape.Step() / 2);
    const auto expected = client_->Attend(
        Args(shape, reinterpret_cast<std::byte*>(host.data())), kTimeout);
    ASSERT_TRUE(expected.ok()) << expected.status();
    ASSERT_EQ(cudaMemcpy(memory.data(), host.data(), host.size() * 2,
                         cudaMemcpyHostToDevice),
              cudaSuccess);
    AttendArgs args = Args(shape, memory.data());
    args.out = {memory.data() + 3 * shape.Step(),
                static_cast<size_t>(shape.Bytes())};
    args.shared = {{memory.data(), memory.bytes(), name}};
    std::vector<double> times;
    const int calls = std::getenv("ATTENDANT_TIMES") != nullptr ? 300 : 3;
    for (int call = 0; call < calls; ++call) {
      const auto begin = std::chrono::steady_clock::now();
      const auto result = client_->Attend(args, kTimeout);
      times.push_back(std::chrono::duration<double, std::milli>(
                          std::chrono::steady_clock::now() - begin)
                          .count());
      ASSERT_TRUE(result.ok()) << result.status();
      EXPECT_EQ(result->served_by.kernel, expected->served_by.kernel);
    }
    std::vector<std::byte> out(shape.Bytes());
    ASSERT_EQ(cudaMemcpy(out.data(), args.out.data(), out.size(),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    EXPECT_EQ(std::memcmp(out.data(), expected->out.data, out.size()), 0);
    std::sort(times.begin(), times.end());
    if (calls > 3) {
      std::printf("%s s%ld h%ld d%ld p50 %.3f ms p99 %.3f ms\n", road,
                  shape.seqlen, shape.heads, shape.head_dim, times[calls / 2],
                  times[calls * 99 / 100]);
    }
  }

  const std::string owner_ = client::RandomRegionOwner();
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<v1::RegionService::Stub> regions_;
};

constexpr Shape kShapes[] = {{8192, 16, 128}, {128, 16, 128}, {1, 1, 64}};

TEST_F(CudaRegionsTest, IpcMemoryHasTheInlineAnswersBits) {
  for (const Shape& shape : kShapes) {
    auto memory = CudaExport::CreateIpc(4 * shape.Step() + (2 << 20));
    ASSERT_TRUE(memory.ok()) << memory.status();
    const v1::RegisterCudaIpcRequest request = RequestFor(**memory);
    v1::RegionStatus region, again;
    const grpc::Status status = RegisterIpc(request, &region);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_TRUE(RegisterIpc(request, &again).ok()) << "a handle twice";
    ExpectInlineAnswer(shape, **memory, region.name(), "ipc");
    for (const std::string& name : {region.name(), again.name()}) {
      grpc::ClientContext context;
      context.AddMetadata("attendant-owner", owner_);
      v1::ReleaseRequest release;
      release.set_name(name);
      v1::ReleaseResponse released;
      EXPECT_TRUE(regions_->Release(&context, release, &released).ok());
    }
  }
  EXPECT_EQ(
      SampleOf(server_->Metrics(), "attendant_region_bytes{kind=\"cuda_ipc\"}"),
      0);
}

// An event that another process may wait for.
class ProducersEvent {
 public:
  ProducersEvent() {
    EXPECT_EQ(cudaEventCreateWithFlags(
                  &event_, cudaEventDisableTiming | cudaEventInterprocess),
              cudaSuccess);
  }
  ~ProducersEvent() { cudaEventDestroy(event_); }
  ProducersEvent(const ProducersEvent&) = delete;
  ProducersEvent& operator=(const ProducersEvent&) = delete;

  cudaEvent_t get() const { return event_; }
  std::string handle() const {
    cudaIpcEventHandle_t handle;
    EXPECT_EQ(cudaIpcGetEventHandle(&handle, event_), cudaSuccess);
    return {reinterpret_cast<const char*>(&handle), sizeof(handle)};
  }

 private:
  cudaEvent_t event_ = nullptr;
};

// Work on the GPU that does not end before it is let.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) {
    EXPECT_EQ(cudaLaunchHostFunc(
                  stream,
                  [](void* gate) {
                    static_cast<Gate*>(gate)->opened_.get_future().wait();
                  },
                  this),
              cudaSuccess);
  }
  void Open() { opened_.set_value(); }

 private:
  std::promise<void> opened_;
};

// The tensors are written behind a gate: the call comes before they are there.
TEST_F(CudaRegionsTest, ACallWaitsForTheProducersEventAndHoldsUpNobodyElse) {
  constexpr Shape kShape{512, 4, 64};
  const int64_t bytes = 4 * kShape.Step();
  auto memory = CudaExport::CreateIpc(bytes + (2 << 20));
  auto made = CudaExport::CreateIpc(bytes + (2 << 20));
  ASSERT_TRUE(memory.ok() && made.ok());
  const std::vector<uint16_t> tensors = RandomHalves(3 * kShape.Step() / 2);
  ASSERT_EQ(cudaMemset((*memory)->data(), 0, bytes), cudaSuccess);
  ASSERT_EQ(cudaMemcpy((*made)->data(), tensors.data(), tensors.size() * 2,
                       cudaMemcpyHostToDevice),
            cudaSuccess);
  const ProducersEvent event;
  v1::RegisterCudaIpcRequest request = RequestFor(**memory);
  request.set_ready_event(event.handle());
  v1::RegionStatus region;
  const grpc::Status status = RegisterIpc(request, &region);
  ASSERT_TRUE(status.ok()) << status.error_message();

  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  Gate gate(stream);
  ASSERT_EQ(cudaMemcpyAsync((*memory)->data(), (*made)->data(), bytes,
                            cudaMemcpyDeviceToDevice, stream),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(event.get(), stream), cudaSuccess);
  AttendArgs args = Args(kShape, (*memory)->data());
  args.out = {(*memory)->data() + 3 * kShape.Step(),
              static_cast<size_t>(kShape.Bytes())};
  args.shared = {{(*memory)->data(), (*memory)->bytes(), region.name()}};
  auto call = std::async(std::launch::async,
                         [&] { return client_->Attend(args, kTimeout); });
  // Another caller is served meanwhile, and again and again.
  AttendArgs inline_args =
      Args(kShape,
           reinterpret_cast<std::byte*>(const_cast<uint16_t*>(tensors.data())));
  absl::StatusOr<client::AttendResult> expected;
  for (int other = 0; other < 20; ++other) {
    expected = client_->Attend(inline_args, std::chrono::seconds(5));
    EXPECT_TRUE(expected.ok()) << expected.status();
  }
  EXPECT_EQ(call.wait_for(std::chrono::milliseconds(100)),
            std::future_status::timeout)
      << "the tensors were not there";
  gate.Open();
  const auto answer = call.get();
  ASSERT_TRUE(answer.ok()) << answer.status();
  std::vector<std::byte> out(kShape.Bytes());
  ASSERT_EQ(cudaMemcpy(out.data(), args.out.data(), out.size(),
                       cudaMemcpyDeviceToHost),
            cudaSuccess);
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(std::memcmp(out.data(), expected->out.data, out.size()), 0);
  cudaStreamDestroy(stream);
}

// A producer that never gets there: its call ends in time, and others go on.
TEST_F(CudaRegionsTest, AnEventThatNeverComesEndsItsOwnCallAlone) {
  constexpr Shape kShape{128, 2, 64};
  auto memory = CudaExport::CreateIpc(4 << 20);
  ASSERT_TRUE(memory.ok());
  const ProducersEvent event;
  v1::RegisterCudaIpcRequest request = RequestFor(**memory);
  request.set_ready_event(event.handle());
  v1::RegionStatus region;
  ASSERT_TRUE(RegisterIpc(request, &region).ok());
  cudaStream_t stream;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
            cudaSuccess);
  Gate gate(stream);
  ASSERT_EQ(cudaEventRecord(event.get(), stream), cudaSuccess);
  AttendArgs args = Args(kShape, (*memory)->data());
  args.shared = {{(*memory)->data(), (*memory)->bytes(), region.name()}};
  const auto late = client_->Attend(args, std::chrono::milliseconds(300));
  EXPECT_EQ(late.status().code(), absl::StatusCode::kDeadlineExceeded);
  const std::vector<uint16_t> tensors = RandomHalves(3 * kShape.Step() / 2);
  const auto other = client_->Attend(
      Args(kShape,
           reinterpret_cast<std::byte*>(const_cast<uint16_t*>(tensors.data()))),
      std::chrono::seconds(5));
  EXPECT_TRUE(other.ok()) << other.status();
  gate.Open();
  EXPECT_TRUE(client_->Attend(args, kTimeout).ok());
  cudaStreamDestroy(stream);
}

TEST_F(CudaRegionsTest, WhatCannotBeOpenedIsNamed) {
  auto memory = CudaExport::CreateIpc(4 << 20);
  ASSERT_TRUE(memory.ok());
  const auto expect = [&](const v1::RegisterCudaIpcRequest& request,
                          const char* text) {
    v1::RegionStatus region;
    const grpc::Status status = RegisterIpc(request, &region);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr(text));
  };
  const v1::RegisterCudaIpcRequest good = RequestFor(**memory);
  v1::RegisterCudaIpcRequest bad = good;
  bad.set_device_uuid("GPU-00000000-0000-0000-0000-000000000000");
  expect(bad, "the GPU that this server uses");
  bad = good;
  bad.set_handle(std::string(64, 'x'));
  expect(bad, "expandable_segments");
  bad.set_handle("short");
  expect(bad, "64 bytes");
  for (const int64_t offset : {int64_t{-256}, int64_t{8}, int64_t{1} << 40}) {
    bad = good;
    bad.set_byte_offset(offset);
    expect(bad, "multiple of 256");
  }
  bad = good;
  bad.set_ready_event("event");
  expect(bad, "ready_event");
  v1::RegionStatus region;
  EXPECT_TRUE(RegisterIpc(good, &region).ok()) << "the next one is served";
}

TEST_F(CudaRegionsTest, VmmMemoryHasTheInlineAnswersBits) {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, SocketPath().c_str());
  ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)),
            0);
  const auto ask = [&](const v1::RegionDoorRequest& request, int descriptor) {
    auto reply =
        client::AskRegionDoor(fd, request.SerializeAsString(), descriptor);
    EXPECT_TRUE(reply.ok()) << reply.status();
    v1::RegionDoorReply parsed;
    EXPECT_TRUE(parsed.ParseFromString(reply.value_or("")));
    return parsed;
  };
  v1::RegionDoorRequest open;
  open.mutable_open()->set_owner(owner_);
  ask(open, -1);
  for (const Shape& shape : kShapes) {
    auto memory = CudaExport::CreateVmm(4 * shape.Step());
    ASSERT_TRUE(memory.ok()) << memory.status();
    v1::RegionDoorRequest request;
    request.mutable_register_cuda_vmm()->set_byte_length((*memory)->bytes());
    request.mutable_register_cuda_vmm()->set_device_uuid(CudaUuid());
    const auto reply = ask(request, (*memory)->descriptor());
    ASSERT_EQ(reply.code(), 0) << reply.message();
    ExpectInlineAnswer(shape, **memory, reply.region().name(), "vmm");
    request.mutable_register_cuda_vmm()->set_byte_length((*memory)->bytes() +
                                                         (2 << 20));
    EXPECT_THAT(ask(request, (*memory)->descriptor()).message(),
                HasSubstr("byte_length"));
  }
  close(fd);
}

}  // namespace
}  // namespace attendant::testing
