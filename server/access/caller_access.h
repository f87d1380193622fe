// The policy in force, and the check of one call before its body is read.
#pragma once

#include <grpcpp/server_context.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/access/access_policy.h"

namespace attendant::server {

// Thread-safe. Without a file everybody may call everything.
class CallerAccess {
 public:
  // Reads the file named by --policy; empty = open to everybody. Errors: those
  // of AccessPolicy::Parse, and INVALID_ARGUMENT if it cannot be read.
  static absl::StatusOr<std::unique_ptr<CallerAccess>> Create(
      const std::string& path);

  // Reads the file again. A file with an error changes nothing.
  absl::Status Reload();

  // `full_method` is "/package.Service/Method". A refusal is written to the log
  // as one audit line: method, peer, reason; and the identity if it is known.
  absl::StatusOr<std::shared_ptr<const Identity>> Check(
      const grpc::ServerContextBase& context,
      const std::string& full_method) const;

  // Those of the policy in force.
  std::vector<std::shared_ptr<const Identity>> Identities() const;

  bool is_open() const { return path_.empty(); }

 private:
  explicit CallerAccess(std::string path) : path_(std::move(path)) {}

  const std::string path_;
  mutable std::mutex mu_;
  std::shared_ptr<const AccessPolicy> policy_;  // guarded by mu_
};

}  // namespace attendant::server
