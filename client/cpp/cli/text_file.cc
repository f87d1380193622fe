#include "client/cpp/cli/text_file.h"

#include <cstdio>
#include <fstream>

#include "client/cpp/client_error.h"

namespace attendant::client::cli {

absl::Status WriteTextFile(const std::string& flag, const std::string& path,
                           const std::string& text) {
  if (path == "-") {
    std::fputs(text.c_str(), stdout);
    return absl::OkStatus();
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return InvalidField(flag, path, "a file that can be written");
}

}  // namespace attendant::client::cli
