// The attendant command.
#include <string>
#include <vector>

#include "client/cpp/cli/commands.h"

int main(int argc, char** argv) {
  return attendant::client::cli::RunCommand(
      std::vector<std::string>(argv + 1, argv + argc));
}
