// Who may call what: the policy file, parsed, and its decision. Knows nothing
// of gRPC.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace attendant::server {

// A caller as the policy knows it.
struct Identity {
  std::string name;
  // Method names ("Attend", "GetServerInfo", "ModelInfer", ...); "*" = all.
  std::vector<std::string> methods;
  // A request's priority above this counts as this.
  int max_priority = 100;
  // Share of the device among identities that wait, and of the places that are
  // kept for bodies on their way (upload_slots.h), > 0.
  double weight = 1;
  // Of the queue's bounds, so much may be this identity's, (0, 1].
  double queue_share = 1;

  bool May(const std::string& method) const;
};

// What a caller shows of itself.
struct Credentials {
  std::string token;  // of "authorization: Bearer <token>"; empty = none
  // Verified names of an mTLS certificate: its subject alternative names, or
  // its common name.
  std::vector<std::string> names;
};

// Immutable once parsed. The file is JSON:
//   {"anonymous": {"methods": ["GetServerInfo"]},
//    "identities": [
//      {"name": "search", "token_sha256": "<64 hex digits>",
//       "methods": ["*"], "max_priority": 10, "weight": 2,
//       "queue_share": 0.5},
//      {"name": "batch", "certificate_name": "spiffe://x/batch",
//       "methods": ["Attend", "AttendStream"]}]}
// Without "anonymous" a caller that shows nothing is refused. Tokens themselves
// are not in the file: `printf %s TOKEN | sha256sum`.
class AccessPolicy {
 public:
  static constexpr int kMaxIdentities = 64;

  // Everybody may call everything, as "anonymous".
  static std::shared_ptr<const AccessPolicy> Open();
  // INVALID_ARGUMENT naming `place` (a path), field, value and bound. A key
  // that is not known is an error too.
  static absl::StatusOr<std::shared_ptr<const AccessPolicy>> Parse(
      const std::string& json, const std::string& place);

  // UNAUTHENTICATED: credentials that the policy does not know, or none where
  // some are needed. PERMISSION_DENIED: known, but not for this method. The
  // texts tell neither tokens nor who else there is.
  absl::StatusOr<std::shared_ptr<const Identity>> Decide(
      const Credentials& credentials, const std::string& method) const;

  // Everybody who may call.
  std::vector<std::shared_ptr<const Identity>> Identities() const;

 private:
  struct Known {
    std::shared_ptr<const Identity> identity;
    std::string token_sha256;      // 64 lower-case hex digits, or empty
    std::string certificate_name;  // or empty
  };
  std::shared_ptr<const Identity> Find(const Credentials& credentials) const;

  std::vector<Known> known_;
  std::shared_ptr<const Identity> anonymous_;
};

}  // namespace attendant::server
