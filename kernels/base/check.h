// CHECK for our own bugs only: input errors are absl::Status.
#pragma once

#include <cstdio>
#include <cstdlib>

#define ATTENDANT_CHECK(condition)                                          \
  do {                                                                      \
    if (!(condition)) {                                                     \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (false)
