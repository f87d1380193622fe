#include "server/tracing/span_exporter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/server/tracing/collector.h"

namespace attendant::testing {
namespace {

using server::OtlpUrl;
using server::Span;
using server::SpanExporter;
using std::chrono::milliseconds;

std::vector<Span> Spans(int count) {
  return std::vector<Span>(
      static_cast<size_t>(count),
      Span{.trace_id = std::string(32, 'a'),
           .span_id = std::string(16, 'b'),
           .parent_id = "",
           .name = "call",
           .is_call = true,
           .begin_unix_ns = 1'700'000'000'000'000'001,
           .end_unix_ns = 1'700'000'000'000'000'002,
           .attributes = {{"number", int64_t{7}}, {"text", std::string("t")}},
           .error = "bad \xff byte"});
}

SpanExporter::Options To(const Collector& collector) {
  return {.url = *OtlpUrl(collector.url()),
          .resource = {{"service.name", "s"}},
          .most_queued = 100,
          .most_in_batch = 10,
          .period = milliseconds(1),
          // A machine that stands still must not look like a slow collector.
          .timeout = milliseconds(60'000),
          .retry_pause = milliseconds(1),
          .tries = 3};
}

SpanExporter::Counts WaitFor(const SpanExporter& exporter, int64_t count) {
  SpanExporter::Counts counts;
  do {
    std::this_thread::yield();
    counts = exporter.counts();
  } while (counts.exported + counts.dropped < count);
  return counts;
}

TEST(SpanExporter, SendsOtlpJson) {
  Collector collector(200);
  SpanExporter exporter(To(collector));
  exporter.Add(Spans(1));
  EXPECT_EQ(WaitFor(exporter, 1).exported, 1);
  const auto bodies = collector.bodies();
  ASSERT_EQ(bodies.size(), 1u);
  const auto resource = nlohmann::json::parse(bodies[0])["resourceSpans"][0];
  EXPECT_EQ(resource["resource"]["attributes"][0]["value"]["stringValue"], "s");
  const auto span = resource["scopeSpans"][0]["spans"][0];
  EXPECT_EQ(span["traceId"], std::string(32, 'a'));
  EXPECT_EQ(span["kind"], 2);
  EXPECT_EQ(span["startTimeUnixNano"], "1700000000000000001");
  EXPECT_EQ(span["attributes"][0]["value"]["intValue"], "7");
  EXPECT_EQ(span["status"]["code"], 2);
  EXPECT_FALSE(span.contains("parentSpanId"));
}

TEST(SpanExporter, BatchesAreBounded) {
  Collector collector(200);
  SpanExporter exporter(To(collector));
  for (int i = 0; i < 5; ++i) exporter.Add(Spans(5));
  EXPECT_EQ(WaitFor(exporter, 25).exported, 25);
  EXPECT_GE(collector.bodies().size(), 3u);
}

TEST(SpanExporter, AnOverloadedCollectorIsTriedAgainThenDropped) {
  Collector collector(503);
  SpanExporter exporter(To(collector));
  exporter.Add(Spans(2));
  EXPECT_EQ(WaitFor(exporter, 2).dropped, 2);
  EXPECT_EQ(collector.bodies().size(), 3u);
}

TEST(SpanExporter, ARefusalIsNotTriedAgain) {
  Collector collector(400);
  SpanExporter exporter(To(collector));
  exporter.Add(Spans(2));
  EXPECT_EQ(WaitFor(exporter, 2).dropped, 2);
  EXPECT_EQ(collector.bodies().size(), 1u);
}

TEST(SpanExporter, ASlowCollectorCostsSpansAndNoTime) {
  Collector collector(200);
  collector.Hold(true);
  SpanExporter::Options options = To(collector);
  options.period = milliseconds(60'000);  // only full batches leave
  SpanExporter exporter(options);
  exporter.Add(Spans(10));
  collector.WaitForRequests(1);
  for (int i = 0; i < 30; ++i) exporter.Add(Spans(10));
  // 100 wait; the rest was dropped at once.
  EXPECT_EQ(exporter.counts().dropped, 200);
  collector.Hold(false);
  EXPECT_EQ(WaitFor(exporter, 310).exported, 110);
}

TEST(SpanExporter, NobodyThereIsCounted) {
  SpanExporter::Options options = To(Collector(200));  // and gone again
  SpanExporter exporter(options);
  exporter.Add(Spans(3));
  EXPECT_EQ(WaitFor(exporter, 3).dropped, 3);
}

TEST(SpanExporter, FlushSendsWhatIsNoFullBatch) {
  Collector collector(200);
  SpanExporter::Options options = To(collector);
  options.period = milliseconds(60'000);
  SpanExporter exporter(options);
  exporter.Add(Spans(3));
  exporter.Flush(milliseconds(60'000));
  EXPECT_EQ(exporter.counts().exported, 3);
}

TEST(SpanExporter, WhatIsQueuedLeavesAtTheEnd) {
  Collector collector(200);
  {
    SpanExporter::Options options = To(collector);
    options.period = milliseconds(60'000);
    SpanExporter exporter(options);
    exporter.Add(Spans(3));
  }
  EXPECT_EQ(collector.bodies().size(), 1u);
}

TEST(OtlpUrl, DefaultsAreOtlps) {
  const auto url = OtlpUrl("http://collector");
  EXPECT_EQ(url->host + ":" + url->port + url->path,
            "collector:4318/v1/traces");
  const auto all = OtlpUrl("http://[::1]:99/x/y");
  EXPECT_EQ(all->host + " " + all->port + " " + all->path, "::1 99 /x/y");
}

TEST(OtlpUrl, WhatItCannotReachIsRefused) {
  for (const char* text :
       {"", "collector:4318", "https://collector", "http://", "http://:4318",
        "http://a:b", "http://a b", "http://a:1\r\nX: y"}) {
    EXPECT_FALSE(OtlpUrl(text).ok()) << text;
  }
}

}  // namespace
}  // namespace attendant::testing
