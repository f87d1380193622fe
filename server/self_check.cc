#include "server/self_check.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/reference/row_check.h"
#include "server/log.h"

namespace attendant::server {
namespace {

using kernels::AttentionProblem;
using kernels::reference::AnswerRow;

constexpr int64_t kHeads = 2;
constexpr int64_t kRowsOfHead = 4;
// Elements of K and V of one head: they are held twice, 12 bytes each.
constexpr int64_t kMostElements = int64_t{1} << 23;
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

// As the caller got it.
AttentionProblem Answered(const ValidatedRequest& request, std::byte* input,
                          std::byte* output) {
  AttentionProblem problem = Placed(request, input, output);
  if (request.narrow_output_to.has_value()) {
    problem.output_dtype = *request.narrow_output_to;
  }
  return problem;
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
  if (request.output_bytes == 0 || request.output_place.in_region() ||
      request.lse_place.in_region()) {
    return false;
  }
  for (const ValidatedRequest::Image& image : request.images) {
    if (image.place.in_region()) return false;
  }
  const AttentionProblem& problem = request.problem;
  return request.input_bytes + request.output_block_bytes() <=
             options_.max_bytes &&
         LongestKeys(problem) * (problem.head_dim + problem.head_dim_v) <=
             kMostElements &&
         options_.pool->used_bytes() <= options_.pool->capacity_bytes() / 2;
}

void SelfCheck::Watch(const std::shared_ptr<AttentionJob>& job) {
  if (!IsSampled()) return;
  if (!IsEligible(*job) || taken_.exchange(true)) return CountDropped();
  // From here on the block belongs to whoever needs it last.
  if (job->input_keeper == nullptr) {
    job->input_keeper = std::make_shared<HostBlock>(std::move(job->input));
  }
  job->done = [this, job, input = job->input_keeper,
               done = std::move(job->done)](JobResult result) mutable {
    if (result.status.ok()) {
      Keep({std::move(job), std::move(input), result.kernel, Clock::now()});
    } else {
      CountDropped();
      taken_ = false;
    }
    done(std::move(result));
  };
}

void SelfCheck::Keep(Kept kept) {
  std::lock_guard lock(mu_);
  if (stop_) {
    ++counts_.dropped;
    return;
  }
  kept_ = std::make_unique<Kept>(std::move(kept));
  changed_.notify_all();
}

void SelfCheck::CountDropped() {
  std::lock_guard lock(mu_);
  ++counts_.dropped;
}

void SelfCheck::LetGo() {
  if (!taken_) return;
  std::unique_ptr<Kept> freed;
  std::lock_guard lock(mu_);
  if (kept_ == nullptr || checking_) return;
  freed = std::move(kept_);
  ++counts_.dropped;
  taken_ = false;
}

void SelfCheck::Stop() {
  std::unique_lock lock(mu_);
  stop_ = true;
  changed_.notify_all();
  changed_.wait(lock, [this] { return !checking_; });
  if (kept_ != nullptr) ++counts_.dropped;
  kept_.reset();
}

SelfCheck::Counts SelfCheck::counts() const {
  std::lock_guard lock(mu_);
  return counts_;
}

void SelfCheck::Run() {
  // Only on cores that nobody else wants; without the right to, as others.
  const sched_param parameters{};
  pthread_setschedparam(pthread_self(), SCHED_IDLE, &parameters);
  std::unique_lock lock(mu_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || kept_ != nullptr; });
    if (stop_) return;
    const auto since = kept_->since;
    if (!options_.idle()) {
      if (Clock::now() - since < options_.patience) {
        changed_.wait_for(lock, kPause, [this] { return stop_; });
        continue;
      }
      ++counts_.dropped;
    } else {
      checking_ = true;
      lock.unlock();
      const std::string wrong = Check(*kept_);
      lock.lock();
      checking_ = false;
      ++(wrong.empty() ? counts_.right : counts_.wrong);
      if (!wrong.empty()) Report(*kept_, wrong);
    }
    kept_.reset();
    taken_ = false;
    changed_.notify_all();
  }
}

std::string SelfCheck::Check(const Kept& kept) {
  const AttentionProblem problem = Answered(
      *kept.job->request, kept.input->data(), kept.job->output->data());
  const std::vector<AnswerRow> rows = kernels::reference::ChooseRows(
      problem, kHeads, kRowsOfHead, seen_.load());
  const auto verdict = kernels::reference::CheckRows(problem, rows);
  return verdict.worst > kTolerances ? verdict.Describe() : std::string();
}

void SelfCheck::Report(const Kept& kept, const std::string& what) {
  const ValidatedRequest& request = *kept.job->request;
  Log(LogLevel::kError, "self-check: an answer is wrong",
      {{"request_id", request.request_id},
       {"identity", request.caller.identity},
       {"kernel", kept.kernel},
       {"dtype", kernels::Name(request.problem.dtype)},
       {"what", what}});
}

}  // namespace attendant::server
