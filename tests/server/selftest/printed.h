// A stream whose text a test can read.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace attendant::testing {

class Printed {
 public:
  Printed() : file_(open_memstream(&data_, &size_)) {}
  ~Printed() {
    std::fclose(file_);
    std::free(data_);
  }
  Printed(const Printed&) = delete;
  Printed& operator=(const Printed&) = delete;

  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return std::string(data_, size_);
  }

 private:
  char* data_ = nullptr;
  size_t size_ = 0;
  std::FILE* const file_;
};

}  // namespace attendant::testing
