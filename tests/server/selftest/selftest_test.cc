#include "server/selftest/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/selftest/kernel_checks.h"
#include "server/selftest/memory_checks.h"
#include "tests/server/fake_attention_engine.h"
#include "tests/server/selftest/printed.h"

namespace attendant::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

server::ServerOptions SmallCpu() {
  server::ServerOptions options;
  options.engine.backend = server::EngineOptions::Backend::kCpu;
  options.engine.cpu_threads = 2;
  options.engine.host_pool_bytes = int64_t{64} << 20;
  options.engine.max_queued_bytes = int64_t{64} << 20;
  return options;
}

TEST(Selftest, AHealthyNodePasses) {
  Printed printed;
  EXPECT_TRUE(server::RunSelftest(SmallCpu(), printed.file()));
  EXPECT_THAT(printed.text(),
              AllOf(HasSubstr("kernel cpu"), HasSubstr("door stream"),
                    HasSubstr("door shared memory"), HasSubstr("PASS:"),
                    Not(HasSubstr("FAIL"))));
}

TEST(Selftest, EveryMissingThingIsSaid) {
  server::ServerOptions options = SmallCpu();
  options.tls.certificate = "/nonexistent/cert.pem";
  options.tls.key = "/nonexistent/key.pem";
  options.policy = "/nonexistent/policy.json";
  options.engine.backend = server::EngineOptions::Backend::kCuda;
  options.engine.cuda_device = "GPU-00000000-0000-0000-0000-000000000000";
  Printed printed;
  EXPECT_FALSE(server::RunSelftest(options, printed.file()));
  EXPECT_THAT(printed.text(),
              AllOf(HasSubstr("cert.pem"), HasSubstr("policy.json"),
                    HasSubstr("FAIL: 3 of 3")));
}

TEST(Selftest, AWrongKernelIsNamedWithItsCase) {
  FakeAttentionEngine engine;
  engine.AnswerWrong();
  const auto wrong = server::CheckKernel(engine, {}, "cpu");
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("fp32 head_dim 40/40 rows 150: LSE of batch 0 head 0 row 0 is off"));
}

TEST(Selftest, AWrongByteOfMemoryIsNamed) {
  FakeAttentionEngine engine;
  server::Bounds bounds;
  bounds.max_request_bytes = 16 << 20;
  engine.SetPoolCapacity(64 << 20);
  EXPECT_TRUE(server::CheckPools(engine, bounds).ok());
  engine.AnswerWrong();
  const auto wrong = server::CheckPools(engine, bounds);
  EXPECT_THAT(std::string(wrong.status().message()),
              HasSubstr("block 0: byte 0 came back as ffff"));
}

TEST(Selftest, AQueueThatRefusesNothingFails) {
  FakeAttentionEngine engine;
  server::Bounds bounds;
  bounds.max_request_bytes = 1 << 20;
  engine.SetPoolCapacity(8 << 20);
  const auto result = server::CheckBackpressure(engine, bounds);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("nothing was refused"));
}

}  // namespace
}  // namespace attendant::testing
