#include "client/cpp/door_chooser.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/match.h"

namespace attendant::client {
namespace {

// Below this a call's fixed cost outweighs its bytes.
constexpr int64_t kStreamFrom = int64_t{4} << 20;
constexpr int64_t kStripeFrom = int64_t{16} << 20;

// "dns:///host:port", "ipv4:1.2.3.4:5", "[::1]:5", "host:port" -> host.
std::string HostOf(std::string target) {
  for (const char* scheme : {"dns:", "ipv4:", "ipv6:"}) {
    if (absl::StartsWith(target, scheme)) {
      target = target.substr(std::string(scheme).size());
      target.erase(0, target.find_first_not_of('/'));
      break;
    }
  }
  if (absl::StartsWith(target, "[")) {
    return target.substr(1, target.find(']') - 1);
  }
  return target.substr(0, target.rfind(':'));
}

bool IsOwnAddress(const std::string& host) {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first,
                                                               freeifaddrs);
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const void* address =
        family == AF_INET
            ? static_cast<const void*>(
                  &reinterpret_cast<const sockaddr_in*>(one->ifa_addr)
                       ->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(one->ifa_addr)->sin6_addr;
    char text[INET6_ADDRSTRLEN];
    if (inet_ntop(family, address, text, sizeof(text)) != nullptr &&
        host == text) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string ChooseDoor(const DoorSituation& situation) {
  const auto offered = [&](const char* name) {
    return std::find(situation.offered.begin(), situation.offered.end(),
                     name) != situation.offered.end();
  };
  if (situation.same_host) {
    if (situation.device_tensors && offered("ipc")) return "ipc";
    if (offered("shm")) return "shm";
  }
  if (situation.request_bytes >= kStripeFrom && offered("striped")) {
    return "striped";
  }
  if (situation.request_bytes >= kStreamFrom && offered("stream")) {
    return "stream";
  }
  return "unary";
}

bool IsSameHost(const std::string& target) {
  if (absl::StartsWith(target, "unix")) return true;
  const std::string host = HostOf(target);
  if (host == "localhost" || host == "::1" || absl::StartsWith(host, "127.")) {
    return true;
  }
  char own[256] = {};
  if (gethostname(own, sizeof(own) - 1) == 0 && host == own) return true;
  return IsOwnAddress(host);
}

}  // namespace attendant::client
