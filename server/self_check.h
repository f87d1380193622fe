// Are live answers right? Some rows of a share of them are recomputed in double
// precision on the host, another path than any kernel's, when the engine has
// nothing else to do.
//
// Live traffic comes first: one answer at a time is kept, in the blocks of the
// host pool that it has anyway, and only while half of the pool is free; it is
// let go unchecked if the engine was busy for a second, or when somebody needs
// the memory. The thread that checks runs only on cores that nobody else wants.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "server/attention_engine.h"

namespace attendant::server {

// Thread-safe.
class SelfCheck {
 public:
  struct Options {
    double share = 0;       // of the requests, 0..1
    int64_t max_bytes = 0;  // of a request's blocks; larger ones are not kept
    const HostMemoryPool* pool = nullptr;
    std::function<bool()>
        idle;  // has the engine nothing to do? From any thread
    std::chrono::milliseconds patience{1000};  // with a busy engine
  };
  // Of a sampled request: checked and right; checked and wrong; not checked
  // (too large, in a region, another one was kept, the engine was busy).
  struct Counts {
    int64_t right = 0, wrong = 0, dropped = 0;
  };

  explicit SelfCheck(Options options);
  ~SelfCheck();

  // Before a job's Submit: if it is of the sample, keeps its answer when it is
  // done. Wraps job->done and shares its input block.
  void Watch(const std::shared_ptr<AttentionJob>& job);
  // Gives back what is kept, unless rows of it are being computed right now.
  void LetGo();
  // The same, waits for those rows, and keeps nothing from now on.
  void Stop();

  Counts counts() const;

 private:
  // An answer with what it was computed from.
  struct Kept {
    std::shared_ptr<AttentionJob> job;
    std::shared_ptr<HostBlock> input;
    std::string kernel;
    std::chrono::steady_clock::time_point since;
  };

  bool IsSampled();
  bool IsEligible(const AttentionJob& job) const;
  void Keep(Kept kept);
  void CountDropped();
  void Run();
  // Empty, or which row is wrong and how far.
  std::string Check(const Kept& kept);
  static void Report(const Kept& kept, const std::string& what);

  const Options options_;
  std::atomic<uint64_t> seen_{0};
  std::atomic<bool> taken_{false};  // one is watched, kept or being checked

  mutable std::mutex mu_;  // guards what follows
  std::condition_variable changed_;
  std::unique_ptr<Kept> kept_;
  bool checking_ = false;
  bool stop_ = false;
  Counts counts_;
  std::thread thread_;
};

}  // namespace attendant::server
