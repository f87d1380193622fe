#include "tests/operation/steady_traffic.h"

#include <cmath>
#include <cstddef>
#include <span>
#include <utility>

namespace attendant::testing {
namespace {

using client::AttendArgs;
using client::DataType;
using std::chrono::duration;
using std::chrono::steady_clock;

// q = 0: every row of O is the mean of the rows of V, which are their numbers.
struct MeanProblem {
  static constexpr int64_t kRows = 32, kHeads = 2, kHeadDim = 64;
  std::vector<float> q = std::vector<float>(kRows * kHeads * kHeadDim);
  std::vector<float> v = q;
  std::vector<float> out = q;
  AttendArgs args;

  MeanProblem() {
    for (size_t i = 0; i < v.size(); ++i) {
      v[i] = static_cast<float>(i / (kHeads * kHeadDim));
    }
    const std::vector<int64_t> shape = {1, kRows, kHeads, kHeadDim};
    args.q = {q.data(), DataType::kFloat32, shape, {}};
    args.k = {v.data(), DataType::kFloat32, shape, {}};
    args.v = {v.data(), DataType::kFloat32, shape, {}};
    args.out = std::as_writable_bytes(std::span(out));
  }

  bool IsRight() const {
    for (const float value : out) {
      if (std::fabs(value - (kRows - 1) / 2.0F) > 1e-3F) return false;
    }
    return true;
  }
};

}  // namespace

SteadyTraffic::SteadyTraffic(Options options)
    : options_(std::move(options)), begin_(steady_clock::now()) {
  auto made = client::Client::Create(options_.target, options_.client);
  if (!made.ok()) {
    outcome_.failed = 1;
    outcome_.first_error = made.status();
    return;
  }
  client_.emplace(*std::move(made));
  for (int c = 0; c < options_.callers; ++c) {
    threads_.emplace_back([this] { Run(); });
  }
}

void SteadyTraffic::Run() {
  MeanProblem problem;
  Outcome own;
  while (!stopped_) {
    const auto due =
        begin_ +
        std::chrono::duration_cast<steady_clock::duration>(
            duration<double>(static_cast<double>(next_++) / options_.rate));
    std::this_thread::sleep_until(due);
    const auto result = client_->Attend(problem.args, options_.deadline);
    if (result.ok()) {
      ++own.answered;
      own.wrong += !problem.IsRight();
      own.retries += result->attempts - 1;
      own.latency.Record(steady_clock::now() - due);
    } else {
      if (own.failed++ == 0) own.first_error = result.status();
    }
    ++ended_;
  }
  std::lock_guard lock(mu_);
  outcome_.answered += own.answered;
  outcome_.failed += own.failed;
  outcome_.wrong += own.wrong;
  outcome_.retries += own.retries;
  outcome_.latency.Merge(own.latency);
  if (outcome_.first_error.ok()) outcome_.first_error = own.first_error;
}

void SteadyTraffic::WaitForCalls(int64_t count) const {
  const int64_t enough = ended_ + count;
  while (ended_ < enough && !threads_.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

const SteadyTraffic::Outcome& SteadyTraffic::Stop() {
  stopped_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return outcome_;
}

}  // namespace attendant::testing
