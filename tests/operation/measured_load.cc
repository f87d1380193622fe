#include "tests/operation/measured_load.h"

#include <grpcpp/grpcpp.h>

#include <memory>

#include "attendant/v1/attention.grpc.pb.h"
#include "tests/integration/real_server.h"

namespace attendant::testing {
namespace {

using client::cli::LoadClock;
using client::cli::SteadyLoadClock;

constexpr int64_t kHeadDim = 64;

// What one caller saw; no lock.
struct Caller {
  client::cli::LatencyHistogram refusals;
  int64_t refused = 0, refused_with_pushback = 0, wrong = 0;
};

absl::StatusOr<client::AttendResult> Call(
    v1::AttentionService::StubInterface& stub, const CallerOptions& options,
    const v1::AttendRequest& request, Caller* caller) {
  LoadClock& clock = SteadyLoadClock();
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + options.deadline);
  if (!options.token.empty()) {
    context.AddMetadata("authorization", "Bearer " + options.token);
  }
  v1::AttendResponse reply;
  const auto begin = clock.Now();
  const grpc::Status status = stub.Attend(&context, request, &reply);
  if (status.ok()) {
    caller->wrong += reply.output_data().size() != request.q_data().size();
    client::AttendResult result;
    result.attempts = 1;
    return result;
  }
  if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED) {
    caller->refusals.Record(clock.Now() - begin);
    ++caller->refused;
    const auto& trailers = context.GetServerTrailingMetadata();
    caller->refused_with_pushback += trailers.count("grpc-retry-pushback-ms");
  }
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      status.error_message());
}

}  // namespace

double MeasuredLoad::goodput() const {
  return static_cast<double>(result.answered) /
         std::chrono::duration<double>(result.wall).count();
}

MeasuredLoad RunMeasuredLoad(const client::cli::LoadPlan& plan,
                             const CallerOptions& options,
                             const v1::AttendRequest& request) {
  std::vector<std::unique_ptr<v1::AttentionService::Stub>> stubs;
  for (int c = 0; c < options.connections; ++c) {
    stubs.push_back(ConnectTo(options.address));
    // Served before the first intended start.
    grpc::ClientContext context;
    SetPatience(&context);
    if (!options.token.empty()) {
      context.AddMetadata("authorization", "Bearer " + options.token);
    }
    v1::GetServerInfoResponse info;
    const grpc::Status status =
        stubs.back()->GetServerInfo(&context, {}, &info);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  std::vector<Caller> callers(static_cast<size_t>(plan.callers));
  MeasuredLoad load;
  load.result = client::cli::RunLoad(plan, SteadyLoadClock(), [&](int caller) {
    const auto index = static_cast<size_t>(caller);
    return Call(*stubs[index % stubs.size()], options, request,
                &callers[index]);
  });
  for (const Caller& caller : callers) {
    load.refusals.Merge(caller.refusals);
    load.refused += caller.refused;
    load.refused_with_pushback += caller.refused_with_pushback;
    load.wrong += caller.wrong;
  }
  return load;
}

v1::AttendRequest LoadRequest(int64_t heads, int64_t seqlen) {
  v1::AttendRequest request;
  for (auto* spec :
       {request.mutable_q(), request.mutable_k(), request.mutable_v()}) {
    spec->set_dtype(v1::DATA_TYPE_FP16);
    spec->set_layout(v1::LAYOUT_BSHD);
    for (const int64_t size : {int64_t{1}, seqlen, heads, kHeadDim}) {
      spec->add_shape(size);
    }
  }
  const auto bytes = static_cast<size_t>(seqlen * heads * kHeadDim * 2);
  for (auto* data : {request.mutable_q_data(), request.mutable_k_data(),
                     request.mutable_v_data()}) {
    data->resize(bytes);
  }
  return request;
}

double LoadFlops(int64_t heads, int64_t seqlen) {
  return 4.0 * static_cast<double>(heads) * static_cast<double>(seqlen) *
         static_cast<double>(seqlen) * kHeadDim;
}

}  // namespace attendant::testing
