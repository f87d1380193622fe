// Sends spans to a collector in the background: OTLP/HTTP, JSON.
//
// Never waits for the collector where calls are served: a full queue drops
// spans and counts them. A batch that the collector did not take is tried again
// a few times while the queue goes on filling.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tracing/http_post.h"
#include "server/tracing/otlp_json.h"
#include "server/tracing/span.h"

namespace attendant::server {

// Thread-safe.
class SpanExporter {
 public:
  struct Options {
    HttpUrl url;
    TraceResource resource;
    size_t most_queued = 8192;  // spans; some 4 MB
    size_t most_in_batch = 512;
    std::chrono::milliseconds period{1000};   // a batch waits at most so long
    std::chrono::milliseconds timeout{5000};  // of one POST
    std::chrono::milliseconds retry_pause{500};
    int tries = 3;
  };
  struct Counts {
    int64_t exported = 0;
    int64_t dropped = 0;  // the queue was full, or nobody took them
  };

  explicit SpanExporter(Options options);
  // Sends what is queued, once, within one timeout.
  ~SpanExporter();

  void Add(std::vector<Span> spans);
  // Sends what is queued at once. Returns when it has left or was dropped, or
  // after `patience`.
  void Flush(std::chrono::milliseconds patience);
  Counts counts() const;

 private:
  void Run();
  // False if the batch is lost.
  bool Send(const std::vector<Span>& batch);
  bool stopping() const;

  const Options options_;
  mutable std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Span> queue_;
  Counts counts_;
  bool sending_ = false;
  bool flush_ = false;  // batches need not be full
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace attendant::server
