// Which door is best for a call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace attendant::client {

struct DoorSituation {
  bool same_host = false;       // as IsSameHost says of the target
  bool device_tensors = false;  // q, k, v lie in GPU memory
  int64_t request_bytes = 0;    // of all input tensors
  // Those of DoorsOfThisBuild that the server has too; holds "unary".
  std::vector<std::string> offered;
};

// The name of the best door among those offered. Pure.
std::string ChooseDoor(const DoorSituation& situation);

// True if `target` (as Client::Create takes it) is this machine: a unix socket,
// a loopback address, this host's name or an address of an interface of it.
bool IsSameHost(const std::string& target);

}  // namespace attendant::client
