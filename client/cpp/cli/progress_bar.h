// A line that shows how far long work is: on a terminal only.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

namespace attendant::client::cli {

// Writes to stderr, redrawn in place at most ten times a second; writes nothing
// where stderr is no terminal, and leaves no trace behind. Not thread-safe.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Show(double done);  // 0..1

 private:
  const bool visible_;
  const std::string label_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point next_draw_{};
};

// "label [#####-----]  50 %", `columns` wide at most.
std::string ProgressLine(const std::string& label, double done, int columns);

}  // namespace attendant::client::cli
