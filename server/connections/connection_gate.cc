#include "server/connections/connection_gate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "server/log/log.h"

namespace attendant::server {
namespace {

// Who is at the other end: an IP address without its port, or a user.
std::string PeerOf(int fd) {
  sockaddr_storage storage{};
  socklen_t length = sizeof(storage);
  auto* address = reinterpret_cast<sockaddr*>(&storage);
  if (getpeername(fd, address, &length) != 0) return "";
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
    return text;
  }
  if (address->sa_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
      inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, text, sizeof(text));
    } else {
      inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof(text));
    }
    return text;
  }
  ucred user{};
  length = sizeof(user);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length) != 0) return "";
  return "uid " + std::to_string(user.uid);
}

// Socket numbers of all sockets of this process.
std::set<ino_t> SocketsOfProcess() {
  std::set<ino_t> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end;
       !error && it != end; it.increment(error)) {
    struct stat status {};
    if (fstat(std::atoi(it->path().filename().c_str()), &status) == 0 &&
        S_ISSOCK(status.st_mode)) {
      sockets.insert(status.st_ino);
    }
  }
  return sockets;
}

// A closed connection says nothing of why; a reset is at least no end of data.
void TurnAway(UniqueFd fd) {
  const linger reset{1, 0};
  setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

}  // namespace

std::unique_ptr<ConnectionGate> ConnectionGate::Start(
    const ConnectionLimits& limits, std::vector<Door> doors) {
  std::unique_ptr<ConnectionGate> gate(
      new ConnectionGate(limits, std::move(doors)));
  gate->thread_ = std::thread([&gate = *gate] { gate.Run(); });
  return gate;
}

ConnectionGate::ConnectionGate(const ConnectionLimits& limits,
                               std::vector<Door> doors)
    : limits_(limits),
      doors_(std::move(doors)),
      stop_(eventfd(0, EFD_CLOEXEC)) {}

ConnectionGate::~ConnectionGate() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ConnectionGate::Run() {
  std::vector<pollfd> polled = {{stop_.get(), POLLIN, 0}};
  std::vector<const HandOver*> hand_overs = {nullptr};
  for (const Door& door : doors_) {
    for (const ListenSocket& socket : door.sockets) {
      polled.push_back({socket.fd.get(), POLLIN, 0});
      hand_overs.push_back(&door.hand_over);
    }
  }
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0) Accept(polled[i].fd, *hand_overs[i]);
    }
  }
}

void ConnectionGate::Accept(int listener, const HandOver& hand_over) {
  UniqueFd fd(
      accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid()) return;  // taken back, or see accept_guard.h
  struct stat status {};
  if (fstat(fd.get(), &status) != 0) return;
  if (!Admit(status.st_ino, PeerOf(fd.get()))) return TurnAway(std::move(fd));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  hand_over(std::move(fd));
}

bool ConnectionGate::Admit(ino_t socket, const std::string& peer) {
  std::lock_guard lock(mu_);
  const auto full = [&] {
    return limits_.all > 0 && static_cast<int64_t>(open_.size()) >= limits_.all;
  };
  const auto peer_full = [&] {
    return limits_.per_peer > 0 &&
           std::count_if(open_.begin(), open_.end(), [&](const auto& entry) {
             return entry.second == peer;
           }) >= limits_.per_peer;
  };
  // What is open is counted anew only when it matters.
  if (full() || peer_full()) Prune();
  if (full() || peer_full()) {
    const bool all = full();
    ++(all ? counts_.refused : counts_.refused_peer);
    constexpr std::chrono::seconds kLogPeriod{10};
    const auto now = std::chrono::steady_clock::now();
    if (now - last_log_ < kLogPeriod) return false;
    last_log_ = now;
    Log(LogLevel::kWarning, "a connection is refused: too many",
        {{"peer", peer},
         {"open", open_.size()},
         {"bound", all ? "max_connections" : "max_connections_per_peer"}});
    return false;
  }
  open_[socket] = peer;
  return true;
}

void ConnectionGate::Prune() {
  const std::set<ino_t> alive = SocketsOfProcess();
  std::erase_if(open_, [&](const auto& entry) {
    return alive.find(entry.first) == alive.end();
  });
}

ConnectionCounts ConnectionGate::Counts() {
  std::lock_guard lock(mu_);
  Prune();
  ConnectionCounts counts = counts_;
  counts.open = static_cast<int64_t>(open_.size());
  return counts;
}

}  // namespace attendant::server
