// Bounds on connections, which gRPC 1.51 does not have: we accept, count, and
// hand on to gRPC what is within them. Others are closed at once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/connections/listen_sockets.h"
#include "server/connections/unique_fd.h"

namespace attendant::server {

struct ConnectionLimits {
  int64_t all = 0;       // 0 = no limit
  int64_t per_peer = 0;  // of one IP address, or one user of a unix socket

  bool any() const { return all > 0 || per_peer > 0; }
};

struct ConnectionCounts {
  int64_t open = 0;
  int64_t refused = 0;       // beyond `all`
  int64_t refused_peer = 0;  // beyond `per_peer`
};

// Thread-safe.
class ConnectionGate {
 public:
  // Owns the connection from then on.
  using HandOver = std::function<void(UniqueFd fd)>;
  struct Door {
    std::vector<ListenSocket> sockets;
    HandOver hand_over;
  };

  // Accepts on a thread of its own until it is destroyed.
  static std::unique_ptr<ConnectionGate> Start(const ConnectionLimits& limits,
                                               std::vector<Door> doors);
  ~ConnectionGate();

  ConnectionCounts Counts();

 private:
  ConnectionGate(const ConnectionLimits& limits, std::vector<Door> doors);
  void Run();
  void Accept(int listener, const HandOver& hand_over);
  // True if one more of `peer` is within the limits.
  bool Admit(ino_t socket, const std::string& peer);
  // mu_ held: forgets connections that gRPC has closed.
  void Prune();

  const ConnectionLimits limits_;
  const std::vector<Door> doors_;
  UniqueFd stop_;  // eventfd
  std::mutex mu_;
  std::map<ino_t, std::string> open_;  // peer by socket; guarded by mu_
  ConnectionCounts counts_;            // guarded by mu_
  // Of a refusal: an attack must not fill the log. Guarded by mu_.
  std::chrono::steady_clock::time_point last_log_;
  std::thread thread_;
};

}  // namespace attendant::server
