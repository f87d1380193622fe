// Are live answers right? Some rows of a share of them are recomputed in double
// precision on the host, another path than any kernel's, when the engine has
// nothing else to do.
//
// Live traffic comes first. Of an answer, one sequence's K and V head with its
// query heads is copied to memory of our own by a copy thread; the pool's
// blocks are held no longer. One such sample is there at a time; it is let go
// unchecked if the engine was busy for a second. The thread that checks has the
// least priority, and nobody waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/problem.h"
#include "server/engine/attention_engine.h"

namespace attendant::server {

// Thread-safe.
class SelfCheck {
 public:
  struct Options {
    double share = 0;       // of the requests, 0..1
    int64_t max_bytes = 0;  // of a request's blocks; larger ones are not kept
    std::function<bool()>
        idle;  // has the engine nothing to do? From any thread
    // Has a copy made, on another thread. Not called once Stop has returned.
    std::function<void(std::function<void()>)> run;
    std::chrono::milliseconds patience{1000};  // with a busy engine
  };
  // Of a sampled request: checked and right; checked and wrong; not checked
  // (too large, in a region, another one was kept, the engine was busy).
  struct Counts {
    int64_t right = 0, wrong = 0, dropped = 0;
  };

  explicit SelfCheck(Options options);
  ~SelfCheck();

  // Before a job's Submit: if it is of the sample, takes its sample when it is
  // done. Wraps job->done and shares its input block.
  void Watch(const std::shared_ptr<AttentionJob>& job);
  // No copies from now on; what is kept is dropped. Waits for nobody.
  void Stop();

  Counts counts() const;

 private:
  // A part of an answer with what it was computed from.
  struct Sample {
    std::unique_ptr<std::byte[]> input, output;
    std::vector<float> slopes, sinks;
    kernels::AttentionProblem problem;  // of all these
    std::string place;                  // in the request, for people
    std::string request_id, identity, kernel;
    std::chrono::steady_clock::time_point since;
  };

  bool IsSampled();
  bool IsEligible(const AttentionJob& job) const;
  // Has the sample copied, unless stopped; then drops it.
  void Take(std::shared_ptr<AttentionJob> job, std::shared_ptr<HostBlock> input,
            std::string kernel);
  std::unique_ptr<Sample> Copy(const AttentionJob& job, std::byte* input) const;
  void CountDropped();
  void Run();
  // Empty, or which row is wrong and how far.
  static std::string Check(const Sample& sample);
  static void Report(const Sample& sample, const std::string& what);

  const Options options_;
  std::atomic<uint64_t> seen_{0};
  std::atomic<bool> taken_{false};  // one is watched, copied or checked

  mutable std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Sample> sample_;  // waits for an idle engine
  bool stop_ = false;
  Counts counts_;
  std::thread thread_;
};

}  // namespace attendant::server
