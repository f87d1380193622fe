// Traced calls through a server on loopback.
#include "server/tracing/call_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "nlohmann/json.hpp"
#include "server/log/log.h"
#include "tests/server/served_engine.h"
#include "tests/server/tracing/collector.h"

namespace attendant::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kParent[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr char kNotRecorded[] =
    "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

class CallTraceTest : public ::testing::Test {
 protected:
  CallTraceTest() {
    server::SetLogLevel(server::LogLevel::kDebug);
    server::SetLogSink([this](const std::string& line) {
      std::lock_guard lock(mu_);
      log_ += line + "\n";
    });
  }
  ~CallTraceTest() override {
    server::SetLogSink(nullptr);
    server::SetLogLevel(server::LogLevel::kInfo);
  }

  // Until the server ends, when all spans have left.
  void Serve(double share = 0) {
    server::ServerOptions options = LoopbackOptions();
    options.otlp_endpoint = collector_.url();
    options.trace_share = share;
    served_ = std::make_unique<ServedEngine>(options);
  }

  // The traceresponse; empty if there was none.
  std::string Call(const std::string& traceparent, bool good = true) {
    v1::AttendRequest request = MeanRequest(8, 4);
    request.set_request_id("r7");
    if (!good) request.mutable_q()->set_shape(3, 5);
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    if (!traceparent.empty()) context.AddMetadata("traceparent", traceparent);
    v1::AttendResponse reply;
    const grpc::Status status =
        served_->stub().Attend(&context, request, &reply);
    EXPECT_EQ(status.ok(), good) << status.error_message();
    const auto& trailers = context.GetServerTrailingMetadata();
    const auto found = trailers.find("traceresponse");
    return found == trailers.end()
               ? std::string()
               : std::string(found->second.data(), found->second.length());
  }

  // By name, of all batches.
  std::map<std::string, nlohmann::json> Spans() {
    served_.reset();
    std::map<std::string, nlohmann::json> spans;
    for (const std::string& body : collector_.bodies()) {
      const auto json = nlohmann::json::parse(body);
      for (const auto& span :
           json["resourceSpans"][0]["scopeSpans"][0]["spans"]) {
        spans[span["name"]] = span;
      }
    }
    return spans;
  }

  std::string log() {
    std::lock_guard lock(mu_);
    return log_;
  }

  Collector collector_{200};
  std::unique_ptr<ServedEngine> served_;
  std::mutex mu_;
  std::string log_;  // guarded by mu_
};

TEST_F(CallTraceTest, ACallBecomesSpansUnderItsParent) {
  Serve();
  const std::string response = Call(kParent);
  EXPECT_THAT(response, StartsWith(std::string("00-") + kTrace + "-"));
  EXPECT_EQ(response.substr(53), "01");
  auto spans = Spans();
  const auto call = spans["attendant.v1.AttentionService/Attend"];
  EXPECT_EQ(call["traceId"], kTrace);
  EXPECT_EQ(call["parentSpanId"], "b7ad6b7169203331");
  EXPECT_EQ(call["spanId"], response.substr(36, 16));
  for (const char* stage : {"receive", "queue", "send"}) {
    EXPECT_EQ(spans[stage]["parentSpanId"], call["spanId"]) << stage;
    EXPECT_GE(spans[stage]["startTimeUnixNano"].get<std::string>(),
              call["startTimeUnixNano"].get<std::string>());
    EXPECT_LE(spans[stage]["endTimeUnixNano"].get<std::string>(),
              call["endTimeUnixNano"].get<std::string>());
  }
  EXPECT_THAT(log(), HasSubstr(std::string("\"request_id\":\"r7\",\"trace_id"
                                           "\":\"") +
                               kTrace));
}

TEST_F(CallTraceTest, AFailedCallIsASpanWithItsError) {
  Serve();
  EXPECT_THAT(Call(kParent, /*good=*/false), HasSubstr(kTrace));
  auto spans = Spans();
  ASSERT_EQ(spans.size(), 1u);
  EXPECT_EQ(spans.begin()->second["status"]["code"], 2);
}

TEST_F(CallTraceTest, WhatTheCallerDoesNotRecordIsAnsweredButNotExported) {
  Serve();
  EXPECT_EQ(Call(kNotRecorded).substr(53), "00");
  EXPECT_TRUE(Spans().empty());
}

TEST_F(CallTraceTest, WithoutATraceNothingIsSaid) {
  Serve();
  EXPECT_EQ(Call(""), "");
  EXPECT_EQ(Call("nonsense"), "");
  EXPECT_EQ(log().find("trace_id"), std::string::npos);
  EXPECT_TRUE(Spans().empty());
}

TEST_F(CallTraceTest, AShareOfTheOthersBeginsATrace) {
  Serve(/*share=*/1);
  EXPECT_EQ(Call(""), "");
  auto spans = Spans();
  const auto call = spans["attendant.v1.AttentionService/Attend"];
  EXPECT_EQ(call["traceId"].get<std::string>().size(), 32u);
  EXPECT_FALSE(call.contains("parentSpanId"));
}

TEST_F(CallTraceTest, WithoutACollectorTheTraceIsCarriedOn) {
  served_ = std::make_unique<ServedEngine>();
  EXPECT_EQ(Call(kParent).substr(53), "00");
  EXPECT_THAT(log(), HasSubstr(kTrace));
  EXPECT_EQ(served_->Metric("attendant_trace_spans_total{result=\"exported\"}"),
            0);
}

}  // namespace
}  // namespace attendant::testing
