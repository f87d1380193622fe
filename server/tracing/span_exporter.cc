#include "server/tracing/span_exporter.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/log/log.h"

namespace attendant::server {
namespace {

// What OTLP says may succeed later; no answer at all is like it.
bool MayRetry(int code) {
  return code == 429 || code == 502 || code == 503 || code == 504;
}

}  // namespace

SpanExporter::SpanExporter(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

SpanExporter::~SpanExporter() {
  {
    std::lock_guard lock(mu_);
    stop_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void SpanExporter::Add(std::vector<Span> spans) {
  std::lock_guard lock(mu_);
  if (queue_.size() + spans.size() > options_.most_queued) {
    counts_.dropped += static_cast<int64_t>(spans.size());
    return;
  }
  std::move(spans.begin(), spans.end(), std::back_inserter(queue_));
  if (queue_.size() >= options_.most_in_batch) changed_.notify_all();
}

void SpanExporter::Flush(std::chrono::milliseconds patience) {
  std::unique_lock lock(mu_);
  flush_ = true;
  changed_.notify_all();
  changed_.wait_for(lock, patience,
                    [this] { return queue_.empty() && !sending_; });
  flush_ = false;
}

SpanExporter::Counts SpanExporter::counts() const {
  std::lock_guard lock(mu_);
  return counts_;
}

bool SpanExporter::stopping() const {
  std::lock_guard lock(mu_);
  return stop_;
}

void SpanExporter::Run() {
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait_for(lock, options_.period, [this] {
      return stop_ || (flush_ && !queue_.empty()) ||
             queue_.size() >= options_.most_in_batch;
    });
    const auto end =
        queue_.begin() + static_cast<std::ptrdiff_t>(
                             std::min(queue_.size(), options_.most_in_batch));
    std::vector<Span> batch(std::make_move_iterator(queue_.begin()),
                            std::make_move_iterator(end));
    queue_.erase(queue_.begin(), end);
    if (!batch.empty()) {
      sending_ = true;
      lock.unlock();
      const bool sent = Send(batch);
      lock.lock();
      sending_ = false;
      changed_.notify_all();
      (sent ? counts_.exported : counts_.dropped) +=
          static_cast<int64_t>(batch.size());
      if (!sent && stop_) {
        counts_.dropped += static_cast<int64_t>(queue_.size());
        return;
      }
    }
    if (stop_ && queue_.empty()) return;
  }
}

bool SpanExporter::Send(const std::vector<Span>& batch) {
  const std::string body = RenderOtlpJson(options_.resource, batch);
  std::string why;
  for (int attempt = 1;; ++attempt) {
    const auto code =
        HttpPost(options_.url, "application/json", body, options_.timeout);
    if (code.ok() && *code >= 200 && *code < 300) return true;
    why = code.ok() ? "it answers " + std::to_string(*code)
                    : std::string(code.status().message());
    if ((code.ok() && !MayRetry(*code)) || attempt >= options_.tries ||
        stopping()) {
      break;
    }
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, options_.retry_pause * attempt,
                      [this] { return stop_; });
  }
  Log(LogLevel::kWarning, "spans are lost: the collector does not take them",
      {{"endpoint", options_.url.host + ":" + options_.url.port},
       {"why", why},
       {"spans", batch.size()}});
  return false;
}

}  // namespace attendant::server
