// The servers of this folder as processes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/integration/server_process.h"

namespace attendant::testing {

// The server over a device of so many operations a second.
inline ProcessSetting PacedServer(double flops_per_second) {
  ProcessSetting setting;
  setting.command = {ATTENDANT_OPERATION_SERVER,
                     "paced=" + std::to_string(flops_per_second)};
  return setting;
}

// The server over a device that SIGUSR1 and SIGUSR2 make fail.
inline ProcessSetting FaultyServer() {
  ProcessSetting setting;
  setting.command = {ATTENDANT_OPERATION_SERVER, "faulty"};
  return setting;
}

// attendant-server itself, started by `command`.
inline ProcessSetting AttendantServer(std::vector<std::string> command) {
  ProcessSetting setting;
  setting.command = std::move(command);
  setting.command.push_back(ATTENDANT_SERVER);
  return setting;
}

}  // namespace attendant::testing
