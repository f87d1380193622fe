#include "server/connections/socket_queues.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace attendant::server {
namespace {

TEST(SocketQueues, CountsWhatThePeerHasNotRead) {
  const int64_t before = UndeliveredSocketBytes();
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(UndeliveredSocketBytes(), before);
  char bytes[1000] = {};
  ASSERT_EQ(write(ends[0], bytes, sizeof(bytes)), 1000);
  EXPECT_GE(UndeliveredSocketBytes(), before + 1000);
  ASSERT_EQ(read(ends[1], bytes, sizeof(bytes)), 1000);
  EXPECT_EQ(UndeliveredSocketBytes(), before);
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace attendant::server
