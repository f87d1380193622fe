// A server on the fake GPU: takes its IPC handles, and echoes q.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "attendant/v1/attention.grpc.pb.h"
#include "attendant/v1/region.grpc.pb.h"
#include "tests/client/cpp/cuda/fake_cuda.h"

namespace attendant::client {

class FakeGpuServer final : public v1::AttentionService::Service,
                            public v1::RegionService::Service {
 public:
  explicit FakeGpuServer(const cuda::FakeCuda& gpu);
  ~FakeGpuServer() override;

  std::string target() const { return "127.0.0.1:" + std::to_string(port_); }
  // What happened since the start.
  int registered() const { return registered_; }
  int released() const { return released_; }
  v1::AttendRequest last_request() const;
  size_t regions() const;

  // As a restart does.
  void ForgetRegions();
  // Instead of an answer, if set; then it may take its time.
  std::function<grpc::Status()> fail;
  // Lists that show a region in use, before one that does not.
  std::atomic<int> busy_lists{0};

  grpc::Status Attend(grpc::ServerContext* context,
                      const v1::AttendRequest* request,
                      v1::AttendResponse* response) override;
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override;
  grpc::Status RegisterCudaIpc(grpc::ServerContext* context,
                               const v1::RegisterCudaIpcRequest* request,
                               v1::RegionStatus* region) override;
  grpc::Status Release(grpc::ServerContext* context,
                       const v1::ReleaseRequest* request,
                       v1::ReleaseResponse* response) override;
  grpc::Status List(grpc::ServerContext* context,
                    const v1::ListRequest* request,
                    v1::ListResponse* response) override;

 private:
  // Null if there is no such region.
  std::byte* Find(const v1::Region& region);

  const cuda::FakeCuda& gpu_;
  int port_ = 0;
  std::atomic<int> registered_{0}, released_{0};
  mutable std::mutex mutex_;                    // guards what follows
  std::map<std::string, std::string> handles_;  // by name
  v1::AttendRequest last_request_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace attendant::client
