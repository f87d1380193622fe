// The stream door over the real engine: bit for bit what unary answers, also
// where a request is computed in parts while the rest of it still comes.
#include <gmock/gmock.h>

#include <chrono>
#include <cstring>
#include <stop_token>
#include <thread>

#include "client/cpp/attendant_client.h"
#include "tests/integration/mixed_problems.h"
#include "tests/integration/real_server.h"
#include "tests/integration/wire_problem.h"
#include "tests/testing/tensor_matchers.h"

namespace attendant::testing {
namespace {

using client::AttendArgs;
using client::Client;
using client::Road;
using kernels::DataType;
using std::chrono::seconds;

// Cuts whatever can be cut.
server::ServerOptions FinelyCut() {
  server::ServerOptions options = SmallServerOptions();
  options.engine.work_item_bytes = 4096;
  options.engine.max_batch_bytes = 16384;
  return options;
}

void ExpectNothingHeld(RealServer& server) {
  const auto end = std::chrono::steady_clock::now() + seconds(20);
  while (server.server().engine().Snapshot().host_pool_used_bytes != 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    std::this_thread::yield();
  }
}

void ExpectSame(RealServer& server, const v1::AttendRequest& request,
                int streams, const StreamOptions& options) {
  v1::AttendResponse unary, reply;
  ASSERT_TRUE(server.Attend(request, &unary).ok());
  const grpc::Status status =
      server.AttendByStreams(request, streams, options, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(reply.output_data(), unary.output_data());
  EXPECT_EQ(reply.lse_data(), unary.lse_data());
  EXPECT_EQ(reply.output().SerializeAsString(),
            unary.output().SerializeAsString());
}

TEST(Stream, EveryLayoutAndOptionIsBitwiseUnary) {
  RealServer server(FinelyCut());
  unsigned seed = 0;
  for (const ProblemOptions& options : MixedProblems()) {
    HostProblem problem(options);
    SCOPED_TRACE(Describe(problem));
    const v1::AttendRequest request = ToWire(problem);
    ExpectSame(server, request, 1, {.chunk_bytes = 1 << 16});
    ExpectSame(server, request, 3, {.chunk_bytes = 1024, .seed = ++seed});
  }
  ExpectNothingHeld(server);
}

// No message has to hold them: a few bytes of strides say how far they reach.
TEST(Stream, TensorsThatSpanMoreThan64BitsAreRefused) {
  RealServer server;
  constexpr int64_t kFar = (int64_t{1} << 59) - 1;
  v1::AttendRequest request;
  request.set_compute_dtype(v1::DATA_TYPE_FP32);
  for (v1::TensorSpec* spec :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    spec->set_dtype(v1::DATA_TYPE_FP16);
    spec->set_layout(v1::LAYOUT_BSHD);
    for (const int64_t size : {1, 2, 1, 1}) spec->add_shape(size);
    for (const int64_t stride : {kFar, kFar, int64_t{1}, int64_t{1}}) {
      spec->add_strides(stride);
    }
  }
  v1::TensorSpec* mask = request.mutable_mask();
  mask->set_dtype(v1::DATA_TYPE_FP16);
  for (const int64_t size : {1, 1, 2, 2}) mask->add_shape(size);
  for (const int64_t stride : {kFar, kFar, kFar - 1, int64_t{1}}) {
    mask->add_strides(stride);
  }
  v1::AttendResponse reply;
  const grpc::Status status = server.AttendByStreams(request, 1, {}, &reply);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
      << status.error_message();
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("q.shape"));
  ExpectNothingHeld(server);
}

// BSHD, 1,700 rows: cut by query rows, which start before all of Q is there.
TEST(Stream, QueryRowsAreComputedAsTheyCome) {
  RealServer server(FinelyCut());
  for (const bool causal : {false, true}) {
    ProblemOptions options;
    options.dtype = TestsOnCuda() ? DataType::kFloat16 : DataType::kFloat32;
    options.seqlen_q = options.seqlen_kv = 1700;
    options.num_q_heads = 4;
    options.num_kv_heads = 2;
    options.head_dim = 16;
    options.causal = causal;
    options.batch = 2;
    HostProblem problem(options);
    const v1::AttendRequest request = ToWire(problem);
    ExpectSame(server, request, 1, {.chunk_bytes = 16384});
    ExpectSame(server, request, 2, {.chunk_bytes = 8192, .seed = 11});
  }
}

// O of the first query rows arrives although the last are never sent.
TEST(Stream, OutputReturnsBeforeTheInputIsComplete) {
  RealServer server(FinelyCut());
  ProblemOptions options;
  options.dtype = TestsOnCuda() ? DataType::kFloat16 : DataType::kFloat32;
  options.seqlen_q = options.seqlen_kv = 1700;
  options.num_q_heads = options.num_kv_heads = 8;
  options.head_dim = 64;
  const v1::AttendRequest request = ToWire(HostProblem(options));
  grpc::ClientContext context;
  SetPatience(&context);
  const auto stream = server.stub().AttendStream(&context);
  stream->Write(HeaderOf(request));
  v1::AttendStreamResponse response;
  ASSERT_TRUE(stream->Read(&response));
  auto chunks = ChunksOf(request, 1 << 16);
  // q is first in the list: its last chunk stays back.
  const size_t q_chunks = (request.q_data().size() + 65535) / 65536;
  for (size_t c = 0; c < chunks.size(); ++c) {
    if (c != q_chunks - 1) stream->Write(chunks[c]);
  }
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_EQ(response.chunk().tensor(), v1::STREAM_TENSOR_OUTPUT);
  stream->Write(chunks[q_chunks - 1]);
  bool final = false;
  while (stream->Read(&response)) final |= response.has_final();
  EXPECT_TRUE(final);
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(Stream, UploadsCutOffAnywhereLeaveNothing) {
  RealServer server(FinelyCut());
  ProblemOptions options;
  options.dtype = TestsOnCuda() ? DataType::kFloat16 : DataType::kFloat32;
  options.seqlen_q = options.seqlen_kv = 1700;
  options.num_q_heads = options.num_kv_heads = 4;
  options.head_dim = 32;
  const v1::AttendRequest request = ToWire(HostProblem(options));
  const auto chunks = ChunksOf(request, 1 << 15);
  for (size_t sent = 0; sent <= chunks.size(); sent += 3) {
    grpc::ClientContext context;
    SetPatience(&context);
    const auto stream = server.stub().AttendStream(&context);
    stream->Write(HeaderOf(request));
    v1::AttendStreamResponse response;
    ASSERT_TRUE(stream->Read(&response));
    for (size_t c = 0; c < sent; ++c) {
      stream->Write(chunks[chunks.size() - 1 - c]);
    }
    context.TryCancel();
    while (stream->Read(&response)) continue;
    stream->Finish();
  }
  ExpectNothingHeld(server);
  ExpectSame(server, request, 2, {.chunk_bytes = 1 << 15});
}

// --- The C++ client ---

// Views of a request's own bytes.
AttendArgs ArgsOf(const v1::AttendRequest& request) {
  const auto view = [](const v1::TensorSpec& spec, const std::string& data) {
    client::TensorView view;
    view.data = data.data();
    view.dtype = static_cast<client::DataType>(spec.dtype());
    view.shape.assign(spec.shape().begin(), spec.shape().end());
    view.strides.assign(spec.strides().begin(), spec.strides().end());
    return view;
  };
  AttendArgs args;
  args.layout = static_cast<client::Layout>(request.q().layout());
  args.q = view(request.q(), request.q_data());
  args.k = view(request.k(), request.k_data());
  args.v = view(request.v(), request.v_data());
  args.cu_seqlens_q.assign(request.cu_seqlens_q().begin(),
                           request.cu_seqlens_q().end());
  args.cu_seqlens_k.assign(request.cu_seqlens_k().begin(),
                           request.cu_seqlens_k().end());
  args.causal = request.causal();
  args.alignment = static_cast<client::CausalAlignment>(request.alignment());
  if (request.has_softmax_scale()) args.softmax_scale = request.softmax_scale();
  args.return_lse = request.return_lse();
  return args;
}

Client ClientBy(Road road, const std::string& target) {
  client::ClientOptions options;
  options.road = road;
  options.stripes = 3;
  return *Client::Create(target, options);
}

TEST(Stream, TheClientsRoadsGiveTheSameBits) {
  RealServer server(FinelyCut());
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd, Layout::kThd}) {
    ProblemOptions options;
    options.layout = layout;
    options.dtype = TestsOnCuda() ? DataType::kFloat16 : DataType::kFloat32;
    options.batch = 2;
    options.num_q_heads = 8;
    options.num_kv_heads = 4;
    options.seqlen_q = options.seqlen_kv = 900;
    options.head_dim = 64;
    options.causal = true;
    if (layout == Layout::kThd) {
      options.lens_q = options.lens_kv = {700, 900};
    }
    const v1::AttendRequest request = ToWire(HostProblem(options));
    const AttendArgs args = ArgsOf(request);
    const auto unary =
        ClientBy(Road::kUnary, server.address()).Attend(args, seconds(60));
    ASSERT_TRUE(unary.ok()) << unary.status();
    for (const Road road : {Road::kStream, Road::kStriped, Road::kAuto}) {
      const auto result =
          ClientBy(road, server.address()).Attend(args, seconds(60));
      ASSERT_TRUE(result.ok()) << result.status();
      ASSERT_EQ(result->out.num_bytes, unary->out.num_bytes);
      EXPECT_EQ(std::memcmp(result->out.data, unary->out.data,
                            static_cast<size_t>(unary->out.num_bytes)),
                0);
      EXPECT_EQ(result->out.shape, unary->out.shape);
      ASSERT_EQ(result->lse.num_bytes, unary->lse.num_bytes);
      EXPECT_EQ(std::memcmp(result->lse.data, unary->lse.data,
                            static_cast<size_t>(unary->lse.num_bytes)),
                0);
      EXPECT_EQ(result->served_by.kernel, unary->served_by.kernel);
    }
  }
  ExpectNothingHeld(server);
}

v1::AttendRequest SmallRequest() {
  ProblemOptions options;
  options.dtype = TestsOnCuda() ? DataType::kFloat16 : DataType::kFloat32;
  options.seqlen_q = 64;
  return ToWire(HostProblem(options));
}

TEST(Stream, TheClientTellsErrorsAndStopsWhenAsked) {
  RealServer server;
  const v1::AttendRequest request = SmallRequest();
  AttendArgs args = ArgsOf(request);
  std::vector<std::byte> small(8);
  for (const Road road : {Road::kStream, Road::kStriped}) {
    const Client client = ClientBy(road, server.address());
    args.out = small;
    auto result = client.Attend(args, seconds(60));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(client::GetErrorDetail(result.status())->field, "out");
    args.out = {};
    args.dropout_p = 0.5f;
    result = client.Attend(args, seconds(60));
    EXPECT_EQ(result.status().code(), absl::StatusCode::kUnimplemented);
    EXPECT_EQ(client::GetErrorDetail(result.status())->field, "dropout_p");
    args.dropout_p = 0;
    std::stop_source stopped;
    stopped.request_stop();
    result = client.Attend(args, seconds(60), stopped.get_token());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kCancelled);
    EXPECT_TRUE(client.Attend(args, seconds(60)).ok());
  }
  ExpectNothingHeld(server);
}

TEST(Stream, TheClientSaysWhenNobodyListens) {
  const Client client = ClientBy(Road::kStriped, "127.0.0.1:1");
  const v1::AttendRequest request = SmallRequest();
  const auto result =
      client.Attend(ArgsOf(request), std::chrono::milliseconds(300));
  EXPECT_FALSE(result.ok());
}

}  // namespace
}  // namespace attendant::testing
