// attendant-server over a device for tests:
//   operation_server paced=FLOPS_PER_SECOND|faulty FLAG...
// faulty: SIGUSR1 fails the next launch, SIGUSR2 breaks the device for good.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "server/server_process.h"
#include "tests/operation/faulty_engine.h"
#include "tests/operation/paced_engine.h"

int main(int argc, char** argv) {
  using attendant::server::EngineOptions;
  namespace testing = attendant::testing;
  const std::string device = argc > 1 ? argv[1] : "";
  attendant::server::EngineFactory factory;
  if (device == "faulty") {
    std::signal(SIGUSR1, [](int) { testing::FailNextLaunch(); });
    std::signal(SIGUSR2, [](int) { testing::BreakDevice(); });
    factory = testing::MakeFaultyEngine;
  } else if (device.rfind("paced=", 0) == 0) {
    const double speed = std::atof(device.c_str() + 6);
    factory = [speed](const EngineOptions& options) {
      return testing::MakePacedEngine(
          options, speed, std::make_shared<testing::PacedSource>(speed));
    };
  } else {
    std::fprintf(stderr, "usage: %s paced=FLOPS|faulty FLAG...\n", argv[0]);
    return 2;
  }
  return attendant::server::RunServerProcess({argv + 2, argv + argc}, factory);
}
