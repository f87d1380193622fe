// A server whose answers a test writes itself, on a port of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "attendant/v1/attention.grpc.pb.h"

namespace attendant::client {

class FakeServer : public v1::AttentionService::Service {
 public:
  using Answer = std::function<grpc::Status(
      grpc::ServerContext*, const v1::AttendRequest&, v1::AttendResponse*)>;

  // port 0 = a free one.
  explicit FakeServer(Answer answer, int port = 0,
                      std::shared_ptr<grpc::ServerCredentials> credentials =
                          grpc::InsecureServerCredentials());
  ~FakeServer() override;

  std::string target() const;
  int port() const { return port_; }
  int calls() const { return calls_; }

  grpc::Status Attend(grpc::ServerContext* context,
                      const v1::AttendRequest* request,
                      v1::AttendResponse* response) override;
  grpc::Status GetServerInfo(grpc::ServerContext* context,
                             const v1::GetServerInfoRequest* request,
                             v1::GetServerInfoResponse* response) override;

 private:
  Answer answer_;
  std::atomic<int> calls_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// O = q (so head_dim_v is head_dim), LSE = 1, 2, 3, ..., served by "fake".
grpc::Status EchoQ(grpc::ServerContext*, const v1::AttendRequest& request,
                   v1::AttendResponse* response);

}  // namespace attendant::client
