#include "server/access/caller_access.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/access/file_text.h"
#include "server/log/log.h"
#include "server/request/errors.h"

namespace attendant::server {
namespace {

std::string BearerToken(const grpc::ServerContextBase& context) {
  constexpr char kPrefix[] = "Bearer ";
  constexpr size_t kLength = sizeof(kPrefix) - 1;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found == metadata.end()) return "";
  const std::string value(found->second.data(), found->second.size());
  // A scheme that is not ours is a credential that nobody knows.
  return value.rfind(kPrefix, 0) == 0 ? value.substr(kLength) : value;
}

std::vector<std::string> CertificateNames(
    const grpc::ServerContextBase& context) {
  std::vector<std::string> names;
  const auto auth = context.auth_context();
  if (auth == nullptr || !auth->IsPeerAuthenticated()) return names;
  for (const grpc::string_ref& name : auth->GetPeerIdentity()) {
    names.emplace_back(name.data(), name.size());
  }
  return names;
}

}  // namespace

absl::StatusOr<std::unique_ptr<CallerAccess>> CallerAccess::Create(
    const std::string& path) {
  std::unique_ptr<CallerAccess> access(new CallerAccess(path));
  RETURN_IF_ERROR(access->Reload());
  return access;
}

absl::Status CallerAccess::Reload() {
  std::shared_ptr<const AccessPolicy> policy = AccessPolicy::Open();
  if (!path_.empty()) {
    const std::optional<std::string> text = FileText(path_);
    if (!text.has_value()) {
      return InvalidField("--policy", path_, "a readable file");
    }
    ASSIGN_OR_RETURN(policy, AccessPolicy::Parse(*text, path_));
  }
  std::lock_guard lock(mu_);
  policy_ = std::move(policy);
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const Identity>> CallerAccess::Identities() const {
  std::lock_guard lock(mu_);
  return policy_->Identities();
}

absl::StatusOr<std::shared_ptr<const Identity>> CallerAccess::Check(
    const grpc::ServerContextBase& context,
    const std::string& full_method) const {
  std::shared_ptr<const AccessPolicy> policy;
  {
    std::lock_guard lock(mu_);
    policy = policy_;
  }
  const std::string method = full_method.substr(full_method.rfind('/') + 1);
  auto decision =
      policy->Decide({BearerToken(context), CertificateNames(context)}, method);
  if (!decision.ok()) {
    Log(LogLevel::kWarning, "access refused",
        {{"audit", true},
         {"method", Shortened(full_method)},
         {"peer", context.peer()},
         {"code", static_cast<int>(decision.status().code())},
         {"reason", std::string(decision.status().message())}});
  }
  return decision;
}

}  // namespace attendant::server
