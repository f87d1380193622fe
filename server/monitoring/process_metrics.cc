#include "server/monitoring/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "server/monitoring/metric_families.h"

namespace attendant::server {
namespace {

std::string FirstLine(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

double BootTimeSeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  while (file >> word) {
    if (double seconds; word == "btime" && file >> seconds) return seconds;
  }
  return 0;
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end;
       !error && it != end; it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // the listing holds one itself
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  // proc(5): the name (field 2) may hold blanks and brackets; the rest follows
  // the last ')'. Below, index 0 is field 3.
  const std::string line = FirstLine("/proc/self/stat");
  if (const size_t bracket = line.rfind(')'); bracket != std::string::npos) {
    std::istringstream rest(line.substr(bracket + 1));
    std::string field;
    for (int i = 0; rest >> field; ++i) {
      const double value = std::atof(field.c_str());
      if (i == 11 || i == 12) stats.cpu_seconds += value / ticks;
      if (i == 17) stats.threads = static_cast<int64_t>(value);
      if (i == 19) stats.start_time_seconds = BootTimeSeconds() + value / ticks;
    }
  }
  const int64_t page = sysconf(_SC_PAGESIZE);
  std::istringstream statm(FirstLine("/proc/self/statm"));
  int64_t virtual_pages = 0, resident_pages = 0;
  if (statm >> virtual_pages >> resident_pages) {
    stats.virtual_bytes = virtual_pages * page;
    stats.resident_bytes = resident_pages * page;
  }
  stats.open_fds = CountOpenFds();
  if (rlimit limit; getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  }
  return stats;
}

void AppendProcessMetrics(std::vector<prometheus::MetricFamily>* families) {
  const ProcessStats stats = ReadProcessStats();
  AddCounter(families, "process_cpu_seconds_total",
             "User and system CPU time spent in seconds.", stats.cpu_seconds);
  AddGauge(families, "process_resident_memory_bytes",
           "Resident memory size in bytes.",
           static_cast<double>(stats.resident_bytes));
  AddGauge(families, "process_virtual_memory_bytes",
           "Virtual memory size in bytes.",
           static_cast<double>(stats.virtual_bytes));
  AddGauge(families, "process_open_fds", "Number of open file descriptors.",
           static_cast<double>(stats.open_fds));
  AddGauge(families, "process_max_fds",
           "Maximum number of open file descriptors.",
           static_cast<double>(stats.max_fds));
  AddGauge(families, "process_threads", "Number of threads.",
           static_cast<double>(stats.threads));
  AddGauge(families, "process_start_time_seconds",
           "Start time of the process since unix epoch in seconds.",
           stats.start_time_seconds);
}

}  // namespace attendant::server
