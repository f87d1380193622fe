// What the server says of itself when it starts.
#include <gmock/gmock.h>

#include "tests/operation/fault_fixture.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class StartTest : public FaultTest {
 protected:
  // All that it logged, to its end.
  static std::string LogWith(const std::vector<std::string>& flags) {
    ServerProcess server(Flags(flags));
    EXPECT_NE(server.grpc_address(), "") << server.Log();
    server.Signal(SIGTERM);
    EXPECT_EQ(server.Wait(), 0);
    return server.Log();
  }
};

TEST_F(StartTest, WarnsOfPlaintextThatOtherMachinesReach) {
  const std::string log = LogWith({"--listen=0.0.0.0:0", "--http=0.0.0.0:0"});
  EXPECT_THAT(log, HasSubstr("plaintext beyond this machine"));
  EXPECT_THAT(log, HasSubstr("plaintext HTTP beyond this machine"));
}

TEST_F(StartTest, WarnsOfNothingOnLoopback) {
  EXPECT_THAT(LogWith({}), Not(HasSubstr("\"level\":\"warning\"")));
}

}  // namespace
}  // namespace attendant::testing
