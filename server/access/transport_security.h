// Credentials of the listening ports.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace attendant::server {

// PEM files. Empty certificate and key = plaintext.
struct TlsOptions {
  std::string certificate;  // the chain, the server's own first
  std::string key;
  std::string client_ca;         // set = clients must show a certificate of it
  int64_t refresh_seconds = 60;  // files are read again so often, if changed

  bool enabled() const { return !certificate.empty(); }
};

// Credentials whose files are watched: new handshakes use what is in the files,
// connections that are there stay as they are. INVALID_ARGUMENT naming the flag
// if a file is missing, is no PEM, or key and certificate do not belong
// together.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeTlsCredentials(
    const TlsOptions& options);

}  // namespace attendant::server
