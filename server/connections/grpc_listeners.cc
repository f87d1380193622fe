#include "server/connections/grpc_listeners.h"

#include <sys/stat.h>

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/connections/listen_sockets.h"

namespace attendant::server {
namespace {

bool IsUnixSocket(const std::string& address) {
  return address.rfind("unix:", 0) == 0;
}

// Its bytes and its descriptor are gRPC's from now on.
void GiveToGrpc(grpc::experimental::ExternalConnectionAcceptor* acceptor,
                UniqueFd fd) {
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
      connection;
  connection.fd = fd.Release();
  acceptor->HandleNewConnection(&connection);
}

}  // namespace

std::shared_ptr<grpc::ServerCredentials> GrpcListeners::CredentialsOf(
    const std::string& address) const {
  return IsUnixSocket(address) ? grpc::InsecureServerCredentials()
                               : options_.network;
}

absl::StatusOr<std::unique_ptr<grpc::Server>> GrpcListeners::Start(
    grpc::ServerBuilder* builder) {
  auto server =
      options_.limits.any() ? StartByGate(builder) : StartByGrpc(builder);
  RETURN_IF_ERROR(server.status());
  RETURN_IF_ERROR(SetModes());
  return server;
}

absl::StatusOr<std::unique_ptr<grpc::Server>> GrpcListeners::StartByGrpc(
    grpc::ServerBuilder* builder) {
  std::vector<int> ports(options_.addresses.size());
  std::string all;
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options_.addresses[i];
    // gRPC itself would take the path from a server that lives.
    if (IsUnixSocket(address)) {
      RETURN_IF_ERROR(RemoveStaleSocket(address.substr(5)));
    }
    builder->AddListeningPort(address, CredentialsOf(address), &ports[i]);
    all += (i > 0 ? "," : "") + address;
  }
  // A socket file must not be open to others even for a moment.
  const mode_t umask_before = umask(0177);
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  umask(umask_before);
  if (server == nullptr) {
    return absl::UnavailableError("--listen is '" + all +
                                  "', which cannot be bound");
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    const std::string& address = options_.addresses[i];
    addresses_.push_back(IsUnixSocket(address)
                             ? address
                             : address.substr(0, address.rfind(':') + 1) +
                                   std::to_string(ports[i]));
  }
  return server;
}

absl::StatusOr<std::unique_ptr<grpc::Server>> GrpcListeners::StartByGate(
    grpc::ServerBuilder* builder) {
  using Type = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
  std::vector<ConnectionGate::Door> doors;
  for (const std::string& address : options_.addresses) {
    ConnectionGate::Door door;
    ASSIGN_OR_RETURN(door.sockets, Listen(address));
    addresses_.push_back(door.sockets.front().address);
    acceptors_.push_back(builder->experimental().AddExternalConnectionAcceptor(
        Type::FROM_FD, CredentialsOf(address)));
    door.hand_over = [acceptor = acceptors_.back().get()](UniqueFd fd) {
      GiveToGrpc(acceptor, std::move(fd));
    };
    doors.push_back(std::move(door));
  }
  std::unique_ptr<grpc::Server> server = builder->BuildAndStart();
  if (server == nullptr) {
    return absl::UnavailableError("gRPC cannot start the server");
  }
  gate_ = ConnectionGate::Start(options_.limits, std::move(doors));
  return server;
}

absl::Status GrpcListeners::SetModes() const {
  for (const std::string& address : addresses_) {
    if (!IsUnixSocket(address)) continue;
    const std::string path = address.substr(5);
    if (chmod(path.c_str(), static_cast<mode_t>(options_.unix_socket_mode)) !=
        0) {
      return absl::UnavailableError("--unix_socket_mode cannot be given to " +
                                    path);
    }
  }
  return absl::OkStatus();
}

}  // namespace attendant::server
