// The real attendant-server binary as a child process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace attendant::testing {

// How a process is started, where it is not as usual.
struct ProcessSetting {
  // Program and arguments before the flags; empty = attendant-server.
  std::vector<std::string> command = {};
  std::vector<std::string> environment = {};  // NAME=value, added
  std::string stderr_path = {};               // empty = kept for Log
  uint64_t most_descriptors = 0;              // 0 = as this process
};

// Starts on loopback with free ports, unless flags say otherwise, and waits
// until it is ready. Killed, if still there, when this object goes.
class ServerProcess {
 public:
  explicit ServerProcess(const std::vector<std::string>& flags,
                         const ProcessSetting& setting = {});
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Empty if it did not start.
  const std::string& grpc_address() const { return grpc_; }
  const std::string& http_address() const { return http_; }
  const std::string& start_line() const { return start_line_; }

  void Signal(int signal) const;
  // Blocks until it ends; its exit code, or 128 + the signal that killed it.
  int Wait();
  // What it has written to stderr so far.
  std::string Log() const;
  int64_t ResidentBytes() const;
  int64_t PeakResidentBytes() const;
  int64_t OpenDescriptors() const;
  std::string Metrics() const;

 private:
  pid_t pid_ = -1;
  int stdout_ = -1;
  int stderr_ = -1;  // an unnamed file
  std::string start_line_, grpc_, http_;
};

// Of one sample in Prometheus text; -1 if it is not there.
double SampleOf(const std::string& text, const std::string& sample);

}  // namespace attendant::testing
