// What every fuzz target here starts and fails by.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace attendant::fuzz {

// Ends the process, which the fuzzer takes for a finding, unless `condition`.
inline void Require(bool condition, const std::string& what) {
  if (condition) return;
  std::fprintf(stderr, "violated: %s\n", what.c_str());
  std::abort();
}

// For LLVMFuzzerInitialize, whose result it is: a target called with
// "--seeds FOLDER" writes its seeds there by `write_seeds` and ends.
inline int Start(int argc, char** argv,
                 int (*write_seeds)(const std::string& folder)) {
  if (argc == 3 && std::strcmp(argv[1], "--seeds") == 0) {
    std::exit(write_seeds(argv[2]));
  }
  return 0;
}

}  // namespace attendant::fuzz
