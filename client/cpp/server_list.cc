#include "client/cpp/server_list.h"

#include <arpa/inet.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace attendant::client {
namespace {

bool IsList(const std::string& target) {
  constexpr const char* kSchemes[] = {
      "ipv4:", "ipv6:", "dns:", "unix:", "unix-abstract:", "vsock:", "xds:"};
  return absl::StrContains(target, ',') &&
         std::none_of(std::begin(kSchemes), std::end(kSchemes),
                      [&](const char* scheme) {
                        return absl::StartsWith(target, scheme);
                      });
}

bool IsAddress(int family, const std::string& host) {
  in6_addr bytes;  // room for both kinds
  return inet_pton(family, host.c_str(), &bytes) == 1;
}

// AF_INET, AF_INET6 in brackets, or 0.
int FamilyOf(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) return 0;
  const std::string host = address.substr(0, colon);
  if (IsAddress(AF_INET, host)) return AF_INET;
  const bool bracketed =
      host.size() > 2 && host[0] == '[' && host.back() == ']';
  return bracketed && IsAddress(AF_INET6, host.substr(1, host.size() - 2))
             ? AF_INET6
             : 0;
}

}  // namespace

bool IsBalanced(const std::string& target, const ClientOptions& options) {
  return options.balance || IsList(target);
}

absl::StatusOr<std::string> GrpcTarget(const std::string& target) {
  if (!IsList(target)) return target;
  std::vector<std::string> servers = absl::StrSplit(target, ',');
  for (std::string& server : servers) {
    if (absl::StartsWith(server, "localhost:")) {
      server = absl::StrCat("127.0.0.1", server.substr(server.find(':')));
    }
  }
  const int family = FamilyOf(servers[0]);
  for (const std::string& server : servers) {
    if (family != 0 && FamilyOf(server) == family) continue;
    return InvalidField("target", server,
                        "ADDRESS:PORT, all of a list IPv4 or all IPv6; servers "
                        "behind one name: dns:///NAME:PORT, with balance");
  }
  return absl::StrCat(family == AF_INET ? "ipv4:" : "ipv6:",
                      absl::StrJoin(servers, ","));
}

absl::Status CheckDoorBalances(const std::string& door,
                               const std::string& target,
                               const ClientOptions& options) {
  if (!IsBalanced(target, options)) return absl::OkStatus();
  if (door != "striped" && door != "shm" && door != "ipc") {
    return absl::OkStatus();
  }
  return InvalidField("door", door,
                      "unary, stream or auto where several servers share the "
                      "calls");
}

}  // namespace attendant::client
