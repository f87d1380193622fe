#include "server/monitoring/admin_http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/integration/http_get.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& request) {
  return attendant::testing::HttpAsk("127.0.0.1:" + std::to_string(port),
                                     request);
}

class AdminHttpTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto started = AdminHttp::Start(
        "127.0.0.1:0", {.metrics = [] { return "a_total 1\n"; },
                        .why_not_live = [this] { return live_; },
                        .why_not_ready = [this] { return ready_; },
                        .pages = {{"/a/page.css", "text/css; charset=utf-8",
                                   [] { return "p {}"; }}}});
    ASSERT_TRUE(started.ok()) << started.status();
    http_ = std::move(started).value();
  }
  std::string live_, ready_;
  std::unique_ptr<AdminHttp> http_;
};

TEST_F(AdminHttpTest, MetricsAreTextOfTheVersionPrometheusKnows) {
  ASSERT_GT(http_->port(), 0);
  const std::string answer = Ask(http_->port(), "GET /metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\na_total 1\n"));
}

TEST_F(AdminHttpTest, HealthSaysWhyNot) {
  EXPECT_THAT(Ask(http_->port(), "GET /healthz"), HasSubstr(" 200 "));
  EXPECT_THAT(Ask(http_->port(), "GET /readyz"), HasSubstr(" 200 "));
  ready_ = "draining";
  EXPECT_THAT(Ask(http_->port(), "GET /healthz"), HasSubstr(" 200 "));
  const std::string answer = Ask(http_->port(), "GET /readyz");
  EXPECT_THAT(answer, HasSubstr(" 503 "));
  EXPECT_THAT(answer, HasSubstr("draining"));
  live_ = "broken";
  EXPECT_THAT(Ask(http_->port(), "GET /healthz"), HasSubstr(" 503 "));
}

TEST_F(AdminHttpTest, HeadHasNoBody) {
  const std::string answer = Ask(http_->port(), "HEAD /metrics");
  EXPECT_THAT(answer, HasSubstr(" 200 "));
  EXPECT_THAT(answer, Not(HasSubstr("a_total")));
}

TEST_F(AdminHttpTest, PagesMayUseNothingFromElsewhere) {
  const std::string answer = Ask(http_->port(), "GET /a/page.css");
  EXPECT_THAT(answer, HasSubstr(" 200 "));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/css; charset=utf-8\r\n"));
  EXPECT_THAT(answer, HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\np {}"));
  EXPECT_THAT(Ask(http_->port(), "GET /a/page_css"), Not(HasSubstr(" 200 ")));
}

TEST_F(AdminHttpTest, NothingElseIsServed) {
  for (const char* request :
       {"GET /", "GET /metrics/x", "GET /../etc/passwd", "GET /metricsx"}) {
    EXPECT_THAT(Ask(http_->port(), request), Not(HasSubstr(" 200 ")))
        << request;
  }
  for (const char* request :
       {"POST /metrics", "PUT /metrics", "DELETE /metrics"}) {
    EXPECT_THAT(Ask(http_->port(), request), Not(HasSubstr(" 200 ")))
        << request;
  }
}

TEST_F(AdminHttpTest, AProbeDoesNotWaitBehindSilentConnections) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(http_->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) {
    silent.push_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(connect(silent.back(), reinterpret_cast<const sockaddr*>(&to),
                      sizeof(to)),
              0);
  }
  EXPECT_THAT(Ask(http_->port(), "GET /healthz"), HasSubstr(" 200 "));
  for (const int fd : silent) {
    char byte = 0;  // the server hung up on none of them to answer
    EXPECT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), -1);
    close(fd);
  }
}

TEST_F(AdminHttpTest, PortInUseIsAnError) {
  const std::string address = "127.0.0.1:" + std::to_string(http_->port());
  const auto second = AdminHttp::Start(address, {});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()), HasSubstr(address));
}

}  // namespace
}  // namespace attendant::server
