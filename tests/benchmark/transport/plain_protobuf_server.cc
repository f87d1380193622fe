// Peer: Attend as an ordinary gRPC server is written. Generated code, one
// message parsed into std::strings, pageable copies to the GPU and back, the
// reply in a std::string; the kernels are the same. BSHD and BHSD without
// options, so that what differs is the transport.
//
//   plain_protobuf_server [--cpu-threads=N]    prints "ready HOST:PORT"
#include <grpcpp/grpcpp.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "attendant/v1/attention.grpc.pb.h"
#include "tests/benchmark/attention_c.h"
#ifdef ATTENDANT_WITH_CUDA
#include <cuda_runtime_api.h>
#endif

namespace attendant::benchmark {
namespace {

// The memory of one call at a time and the plan for the last shape seen.
class Workspace {
 public:
  explicit Workspace(int cpu_threads) : cpu_threads_(cpu_threads) {}

  grpc::Status Attend(const v1::AttendRequest& request, std::string* out);

 private:
  enum { kQ, kK, kV, kOut, kTensors };
  struct PlanDeleter {
    void operator()(AttendantPlan* plan) const { attendant_plan_destroy(plan); }
  };
  bool on_gpu() const { return cpu_threads_ == 0; }
  bool Reserve(int tensor, size_t bytes);
  bool Upload(int tensor, const std::string& bytes);
  bool Download(std::string* bytes);
  AttendantTensor View(int tensor, const v1::TensorSpec& spec,
                       int64_t dim) const;
  bool MakePlan(const v1::AttendRequest& request, int64_t out_dim);

  const int cpu_threads_;
  void* memory_[kTensors] = {};
  size_t capacity_[kTensors] = {};
  std::string planned_;  // the specs and options of plan_
  std::unique_ptr<AttendantPlan, PlanDeleter> plan_;
  char error_[256] = {};
};

bool Workspace::Reserve(int tensor, size_t bytes) {
  if (bytes <= capacity_[tensor]) return true;
  plan_.reset();  // it knows the old address
  planned_.clear();
  capacity_[tensor] = bytes;
#ifdef ATTENDANT_WITH_CUDA
  if (on_gpu()) {
    cudaFree(memory_[tensor]);
    return cudaMalloc(&memory_[tensor], bytes) == cudaSuccess;
  }
#endif
  std::free(memory_[tensor]);
  memory_[tensor] = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return memory_[tensor] != nullptr;
}

bool Workspace::Upload(int tensor, const std::string& bytes) {
  if (!Reserve(tensor, bytes.size())) return false;
#ifdef ATTENDANT_WITH_CUDA
  if (on_gpu()) {
    return cudaMemcpy(memory_[tensor], bytes.data(), bytes.size(),
                      cudaMemcpyHostToDevice) == cudaSuccess;
  }
#endif
  std::memcpy(memory_[tensor], bytes.data(), bytes.size());
  return true;
}

bool Workspace::Download(std::string* bytes) {
#ifdef ATTENDANT_WITH_CUDA
  if (on_gpu()) {
    return cudaMemcpy(bytes->data(), memory_[kOut], bytes->size(),
                      cudaMemcpyDeviceToHost) == cudaSuccess;
  }
#endif
  std::memcpy(bytes->data(), memory_[kOut], bytes->size());
  return true;
}

AttendantTensor Workspace::View(int tensor, const v1::TensorSpec& spec,
                                int64_t dim) const {
  const bool heads_first = spec.layout() == v1::LAYOUT_BHSD;
  const int64_t rows = spec.shape(heads_first ? 2 : 1);
  const int64_t heads = spec.shape(heads_first ? 1 : 2);
  return {memory_[tensor], rows * heads * dim, heads_first ? dim : heads * dim,
          heads_first ? rows * dim : dim};
}

bool Workspace::MakePlan(const v1::AttendRequest& request, int64_t out_dim) {
  const std::string wanted =
      request.q().SerializeAsString() + request.k().SerializeAsString() +
      request.v().SerializeAsString() + (request.causal() ? "c" : "");
  if (plan_ != nullptr && wanted == planned_) return true;
  const bool heads_first = request.q().layout() == v1::LAYOUT_BHSD;
  const int rows = heads_first ? 2 : 1, heads = heads_first ? 1 : 2;
  const AttendantSequence sequence = {0, request.q().shape(rows), 0,
                                      request.k().shape(rows), 0};
  AttendantProblem problem = {};
  problem.q = View(kQ, request.q(), request.q().shape(3));
  problem.k = View(kK, request.k(), request.k().shape(3));
  problem.v = View(kV, request.v(), out_dim);
  problem.out = View(kOut, request.q(), out_dim);
  problem.batch = request.q().shape(0);
  problem.num_q_heads = request.q().shape(heads);
  problem.num_kv_heads = request.k().shape(heads);
  problem.head_dim = request.q().shape(3);
  problem.head_dim_v = out_dim;
  problem.rows_q = request.q().shape(rows);
  problem.sequences = &sequence;
  problem.num_sequences = 1;
  problem.window_left = problem.window_right = -1;
  problem.softmax_scale =
      static_cast<float>(1 / std::sqrt(static_cast<double>(problem.head_dim)));
  // Numbers of v1::DataType are one more than those of the kernels.
  problem.dtype = problem.output_dtype =
      static_cast<int32_t>(request.q().dtype()) - 1;
  problem.causal = request.causal() ? 1 : 0;
  plan_.reset(attendant_plan_create(&problem, 1, "", cpu_threads_, error_,
                                    sizeof(error_)));
  planned_ = wanted;
  return plan_ != nullptr;
}

grpc::Status Workspace::Attend(const v1::AttendRequest& request,
                               std::string* out) {
  const int64_t out_dim = request.v().shape(3);
  out->resize(request.q_data().size() / request.q().shape(3) * out_dim);
  if (!Upload(kQ, request.q_data()) || !Upload(kK, request.k_data()) ||
      !Upload(kV, request.v_data()) || !Reserve(kOut, out->size())) {
    return {grpc::StatusCode::INTERNAL, "upload"};
  }
  if (!MakePlan(request, out_dim) ||
      attendant_plan_launch(plan_.get(), nullptr, error_, sizeof(error_)) !=
          0) {
    return {grpc::StatusCode::INTERNAL, error_};
  }
  if (!Download(out)) return {grpc::StatusCode::INTERNAL, "download"};
  return grpc::Status::OK;
}

class Service : public v1::AttentionService::Service {
 public:
  explicit Service(int cpu_threads) : cpu_threads_(cpu_threads) {}

  grpc::Status Attend(grpc::ServerContext*, const v1::AttendRequest* request,
                      v1::AttendResponse* response) override {
    if (request->q().shape_size() != 4 || request->k().shape_size() != 4 ||
        request->v().shape_size() != 4 || request->q().shape(3) == 0) {
      return {grpc::StatusCode::INVALID_ARGUMENT, "BSHD or BHSD, please"};
    }
    std::unique_ptr<Workspace> workspace = Take();
    const grpc::Status status =
        workspace->Attend(*request, response->mutable_output_data());
    GiveBack(std::move(workspace));
    if (!status.ok()) return status;
    *response->mutable_output() = request->q();
    response->mutable_output()->set_shape(3, request->v().shape(3));
    response->mutable_served_by()->set_kernel("same");
    response->mutable_memory()->set_input_bytes(static_cast<int64_t>(
        request->q_data().size() + request->k_data().size() +
        request->v_data().size()));
    response->mutable_memory()->set_output_bytes(
        static_cast<int64_t>(response->output_data().size()));
    return grpc::Status::OK;
  }
  grpc::Status GetServerInfo(grpc::ServerContext*,
                             const v1::GetServerInfoRequest*,
                             v1::GetServerInfoResponse* response) override {
    response->set_version("plain");
    return grpc::Status::OK;
  }

 private:
  // gRPC's threads come and go; workspaces stay.
  std::unique_ptr<Workspace> Take() {
    std::lock_guard lock(mutex_);
    if (free_.empty()) return std::make_unique<Workspace>(cpu_threads_);
    std::unique_ptr<Workspace> workspace = std::move(free_.back());
    free_.pop_back();
    return workspace;
  }
  void GiveBack(std::unique_ptr<Workspace> workspace) {
    std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

  const int cpu_threads_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;  // guarded by mutex_
};

int Main(int argc, char** argv) {
  int cpu_threads = static_cast<int>(std::thread::hardware_concurrency());
#ifdef ATTENDANT_WITH_CUDA
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    cpu_threads = 0;
  }
#endif
  constexpr char kFlag[] = "--cpu-threads=";
  if (argc > 1 && std::strncmp(argv[1], kFlag, sizeof(kFlag) - 1) == 0) {
    cpu_threads = std::atoi(argv[1] + sizeof(kFlag) - 1);
  }
  Service service(cpu_threads);
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                           &port);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("ready 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

}  // namespace
}  // namespace attendant::benchmark

int main(int argc, char** argv) {
  return attendant::benchmark::Main(argc, argv);
}
