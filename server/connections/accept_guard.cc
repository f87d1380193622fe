#include "server/connections/accept_guard.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <limits>
#include <mutex>

#include "server/log/log.h"

namespace attendant::server {
namespace {

// The first descriptor that no connection may have.
std::atomic<int> g_first_kept{std::numeric_limits<int>::max()};
std::atomic<int64_t> g_refused{0};

std::mutex g_mu;
int g_spare =
    -1;  // guarded by g_mu; given up to take a connection and close it
std::chrono::steady_clock::time_point g_warned;  // guarded by g_mu

void CountRefused() {
  ++g_refused;
  std::lock_guard lock(g_mu);
  const auto now = std::chrono::steady_clock::now();
  if (g_warned.time_since_epoch().count() != 0 &&
      now - g_warned < std::chrono::seconds(10)) {
    return;
  }
  g_warned = now;
  Log(LogLevel::kWarning, "connections are closed at once: no descriptors left",
      {{"refused_so_far", g_refused.load()}});
}

int Accept(int listener, sockaddr* address, socklen_t* length, int flags) {
  return static_cast<int>(
      syscall(SYS_accept4, listener, address, length, flags));
}

// Closes the connection that waits first. False if there was none.
bool RefuseFirst(int listener) {
  bool refused = false;
  {
    std::lock_guard lock(g_mu);
    if (g_spare >= 0) close(g_spare);
    const int connection = Accept(listener, nullptr, nullptr, SOCK_CLOEXEC);
    refused = connection >= 0;
    if (refused) close(connection);
    g_spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  if (refused) CountRefused();
  return refused;
}

// What accept(2) says to try again after: errors of a connection, not of the
// listener.
bool IsOfConnection(int error) {
  switch (error) {
    case ECONNABORTED:
    case ENETDOWN:
    case EPROTO:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPERM:
      return true;
    default:
      return false;
  }
}

bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
         error == ENOMEM;
}

}  // namespace

void GuardAccept() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < static_cast<rlim_t>(std::numeric_limits<int>::max())) {
      g_first_kept = static_cast<int>(limit.rlim_cur) - kKeptDescriptors;
    }
  }
  std::lock_guard lock(g_mu);
  g_spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

int64_t RefusedConnections() { return g_refused; }

extern "C" int accept4(int listener, sockaddr* address, socklen_t* length,
                       int flags) {
  const socklen_t room = length == nullptr ? 0 : *length;
  while (true) {
    if (length != nullptr) *length = room;
    const int connection = Accept(listener, address, length, flags);
    if (connection >= g_first_kept) {
      close(connection);
      CountRefused();
      continue;
    }
    if (connection >= 0) return connection;
    if (IsOfConnection(errno)) continue;
    if (!IsShortage(errno)) return connection;
    if (RefuseFirst(listener)) continue;
    // Taken by another thread, or not to be had: gRPC waits for the next.
    errno = EAGAIN;
    return -1;
  }
}

}  // namespace attendant::server
