// The attendant command.
#include <string>
#include <vector>

#include "client/cpp/cli/commands.h"

int main(int argc, char** argv) {
  return attendant::client::cli::RunCommandLine(
      std::vector<std::string>(argv + 1, argv + argc));
}
