// Where a gRPC server listens: by gRPC itself, or, with limits on connections,
// by a gate of our own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/connections/connection_gate.h"

namespace attendant::server {

class GrpcListeners {
 public:
  struct Options {
    std::vector<std::string> addresses;  // HOST:PORT or unix:/path
    std::shared_ptr<grpc::ServerCredentials> network;  // unix: plain
    int64_t unix_socket_mode = 0600;
    ConnectionLimits limits;
  };

  explicit GrpcListeners(Options options) : options_(std::move(options)) {}
  // Accepts no more. Before the server goes.
  ~GrpcListeners() = default;

  // Builds and starts the server, listening. Once. UNAVAILABLE if an address
  // cannot be bound, or another server answers at a unix socket.
  absl::StatusOr<std::unique_ptr<grpc::Server>> Start(
      grpc::ServerBuilder* builder);

  // As bound: the port is never 0.
  const std::vector<std::string>& addresses() const { return addresses_; }
  ConnectionGate* gate() { return gate_.get(); }  // null = no limits

 private:
  absl::StatusOr<std::unique_ptr<grpc::Server>> StartByGrpc(
      grpc::ServerBuilder* builder);
  absl::StatusOr<std::unique_ptr<grpc::Server>> StartByGate(
      grpc::ServerBuilder* builder);
  std::shared_ptr<grpc::ServerCredentials> CredentialsOf(
      const std::string& address) const;
  absl::Status SetModes() const;

  const Options options_;
  std::vector<std::string> addresses_;
  std::vector<std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor>>
      acceptors_;
  std::unique_ptr<ConnectionGate> gate_;  // goes before the acceptors
};

}  // namespace attendant::server
