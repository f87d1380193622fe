#include "server/engine/self_check.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "kernels/reference/row_check.h"
#include "server/engine/item_copies.h"
#include "server/log/log.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;
using kernels::reference::AnswerRow;

constexpr int64_t kHeads = 2;
constexpr int64_t kRowsOfHead = 4;
// Elements of K and V of one head: the check holds them twice, 12 bytes each.
constexpr int64_t kMostElements = int64_t{1} << 22;
// The plain error of a few rows is a guess at that of all.
constexpr double kTolerances = 2;
constexpr std::chrono::milliseconds kPause{2};

int64_t LongestKeys(const AttentionProblem& problem) {
  int64_t longest = 0;
  for (const kernels::SequenceBounds& sequence : problem.sequences) {
    longest = std::max(longest, sequence.len_kv);
  }
  return longest;
}

// A block of `bytes` of which only `rects` are there.
std::unique_ptr<std::byte[]> CopyRects(const std::vector<CopyRect>& rects,
                                       const std::byte* from, int64_t bytes) {
  std::unique_ptr<std::byte[]> to(new std::byte[static_cast<size_t>(bytes)]);
  for (const CopyRect& rect : rects) {
    for (int64_t row = 0; row < rect.height; ++row) {
      const int64_t at = rect.offset + row * rect.pitch;
      std::memcpy(to.get() + at, from + at, static_cast<size_t>(rect.width));
    }
  }
  return to;
}

}  // namespace

SelfCheck::SelfCheck(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

SelfCheck::~SelfCheck() {
  Stop();
  thread_.join();
}

bool SelfCheck::IsSampled() {
  const auto n = static_cast<double>(seen_.fetch_add(1));
  return std::floor((n + 1) * options_.share) > std::floor(n * options_.share);
}

bool SelfCheck::IsEligible(const AttentionJob& job) const {
  const ValidatedRequest& request = *job.request;
  // What was rounded in place is no longer as the kernel wrote it.
  if (request.output_bytes == 0 || request.narrow_output_to.has_value() ||
      request.output_place.in_region() || request.lse_place.in_region()) {
    return false;
  }
  for (const ValidatedRequest::Image& image : request.images) {
    if (image.place.in_region()) return false;
  }
  const AttentionProblem& problem = request.problem;
  return request.input_bytes + request.output_block_bytes() <=
             options_.max_bytes &&
         LongestKeys(problem) * (problem.head_dim + problem.head_dim_v) <=
             kMostElements;
}

void SelfCheck::Watch(const std::shared_ptr<AttentionJob>& job) {
  if (!IsSampled()) return;
  if (!IsEligible(*job) || taken_.exchange(true)) return CountDropped();
  // From here on the block belongs to whoever needs it last.
  if (job->input_keeper == nullptr) {
    job->input_keeper = std::make_shared<HostBlock>(std::move(job->input));
  }
  job->done = [this, job = job, input = job->input_keeper,
               done = std::move(job->done)](JobResult result) mutable {
    if (result.status.ok()) {
      Take(std::move(job), std::move(input), result.kernel);
    } else {
      CountDropped();
      taken_ = false;
    }
    done(std::move(result));
  };
}

void SelfCheck::Take(std::shared_ptr<AttentionJob> job,
                     std::shared_ptr<HostBlock> input, std::string kernel) {
  auto copy = [this, job = std::move(job), input = std::move(input),
               kernel = std::move(kernel)]() mutable {
    auto sample = Copy(*job, input->data());
    sample->kernel = std::move(kernel);
    job.reset();
    input.reset();
    std::lock_guard lock(mu_);
    if (stop_) {
      ++counts_.dropped;
      return;
    }
    sample_ = std::move(sample);
    changed_.notify_all();
  };
  // Held, so that Stop is the end of all copies that begin.
  std::lock_guard lock(mu_);
  if (stop_) {
    ++counts_.dropped;
  } else {
    options_.run(std::move(copy));
  }
}

std::unique_ptr<SelfCheck::Sample> SelfCheck::Copy(const AttentionJob& job,
                                                   std::byte* input) const {
  const ValidatedRequest& request = *job.request;
  std::mt19937_64 random(seen_.load());
  const auto any = [&](int64_t size) {
    return std::uniform_int_distribution<int64_t>(0, size - 1)(random);
  };
  ItemRange range;
  range.batch_begin = any(request.problem.batch);
  range.batch_end = range.batch_begin + 1;
  range.kv_head_begin = any(request.problem.num_kv_heads);
  range.kv_head_end = range.kv_head_begin + 1;
  auto sample = std::make_unique<Sample>();
  sample->input = CopyRects(InputCopies(request, range, /*first=*/true), input,
                            request.input_bytes);
  sample->output = CopyRects(OutputCopies(request, range), job.output->data(),
                             request.output_block_bytes());
  sample->problem = kernels::CutProblem(
      Placed(request, sample->input.get(), sample->output.get()),
      range.batch_begin, range.batch_end, range.kv_head_begin,
      range.kv_head_end);
  AttentionProblem& problem = sample->problem;
  sample->slopes.assign(problem.alibi_slopes.begin(),
                        problem.alibi_slopes.end());
  problem.alibi_slopes = sample->slopes;
  sample->sinks.assign(problem.sinks.begin(), problem.sinks.end());
  problem.sinks = sample->sinks;
  sample->place = "sequence " + std::to_string(range.batch_begin) +
                  ", KV head " + std::to_string(range.kv_head_begin);
  sample->request_id = request.request_id;
  sample->identity = request.caller.identity;
  sample->since = Clock::now();
  return sample;
}

void SelfCheck::CountDropped() {
  std::lock_guard lock(mu_);
  ++counts_.dropped;
}

void SelfCheck::Stop() {
  std::lock_guard lock(mu_);
  stop_ = true;
  if (sample_ != nullptr) ++counts_.dropped;
  sample_.reset();
  changed_.notify_all();
}

SelfCheck::Counts SelfCheck::counts() const {
  std::lock_guard lock(mu_);
  return counts_;
}

void SelfCheck::Run() {
  // Whoever else wants a core gets it. (SCHED_IDLE would wait for minutes on a
  // machine that is full of other programs.)
  constexpr int kLeastPriority = 19;
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kLeastPriority);
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || sample_ != nullptr; });
    if (stop_) return;
    const bool idle = options_.idle();
    if (!idle && Clock::now() - sample_->since < options_.patience) {
      changed_.wait_for(lock, kPause, [this] { return stop_; });
      continue;
    }
    const std::unique_ptr<Sample> sample = std::move(sample_);
    if (idle) {
      lock.unlock();
      const std::string wrong = Check(*sample);
      if (!wrong.empty()) Report(*sample, wrong);
      lock.lock();
      ++(wrong.empty() ? counts_.right : counts_.wrong);
    } else {
      ++counts_.dropped;
    }
    taken_ = false;
  }
}

std::string SelfCheck::Check(const Sample& sample) {
  const std::vector<AnswerRow> rows =
      kernels::reference::ChooseRows(sample.problem, kHeads, kRowsOfHead,
                                     std::hash<std::string>()(sample.kernel));
  const auto verdict = kernels::reference::CheckRows(sample.problem, rows);
  return verdict.worst > kTolerances ? verdict.Describe() : std::string();
}

void SelfCheck::Report(const Sample& sample, const std::string& what) {
  Log(LogLevel::kError, "self-check: an answer is wrong",
      {{"request_id", sample.request_id},
       {"identity", sample.identity},
       {"kernel", sample.kernel},
       {"dtype", kernels::Name(sample.problem.dtype)},
       {"sample", sample.place},
       {"what", what}});
}

}  // namespace attendant::server
