#include "server/connections/socket_queues.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

namespace attendant::server {

int64_t UndeliveredSocketBytes() {
  int64_t sum = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end;
       !error && it != end; it.increment(error)) {
    const int fd = std::atoi(it->path().filename().c_str());
    struct stat status;
    if (fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) continue;
    // Listening sockets refuse this, and hold nothing.
    if (int bytes = 0; ioctl(fd, SIOCOUTQ, &bytes) == 0) sum += bytes;
  }
  return sum;
}

}  // namespace attendant::server
