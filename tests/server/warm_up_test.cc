#include "server/warm_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/fake_attention_engine.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;

TEST(WarmUp, RunsEveryDtypeHeadSizeAndPhase) {
  FakeAttentionEngine engine;
  EXPECT_TRUE(server::WarmUp(engine, {}).ok());
  EXPECT_EQ(engine.computed(), 3 * 4 * 2 * 2);
}

TEST(WarmUp, WrongAnswerIsNamed) {
  FakeAttentionEngine engine;
  engine.AnswerWrong();
  const absl::Status status = server::WarmUp(engine, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("warm-up of fp32 head_dim 64"));
}

TEST(WarmUp, WhatTheServerDoesNotServeIsLeftOut) {
  FakeAttentionEngine engine;
  server::Bounds bounds;
  bounds.max_head_dim = 100;
  EXPECT_TRUE(server::WarmUp(engine, bounds).ok());
  EXPECT_EQ(engine.computed(), 3 * 1 * 2 * 2);
}

TEST(WarmUp, RefusalIsAnError) {
  FakeAttentionEngine engine;
  engine.RefuseWith(absl::UnavailableError("unhealthy"));
  EXPECT_FALSE(server::WarmUp(engine, {}).ok());
}

}  // namespace
}  // namespace attendant::testing
