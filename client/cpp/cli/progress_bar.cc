#include "client/cpp/cli/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

namespace attendant::client::cli {
namespace {

int Columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) {
    return 80;
  }
  return size.ws_col;
}

}  // namespace

std::string ProgressLine(const std::string& label, double done, int columns) {
  constexpr int kWidest = 40, kBrackets = 4, kPercent = 5;
  done = std::clamp(done, 0.0, 1.0);
  const std::string shown =
      label.substr(0, std::max(0, columns - kBrackets - kPercent - 1));
  const int width = std::clamp(
      columns - static_cast<int>(shown.size()) - kBrackets - kPercent, 0,
      kWidest);
  const int full = static_cast<int>(done * width);
  return absl::StrFormat("%s [%s%s] %3d %%", shown, std::string(full, '#'),
                         std::string(width - full, '-'),
                         static_cast<int>(done * 100));
}

ProgressBar::ProgressBar(std::string label)
    : visible_(isatty(STDERR_FILENO) != 0), label_(std::move(label)) {
  Show(0);
}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\x1b[K", stderr);
}

void ProgressBar::Show(double done) {
  constexpr std::chrono::milliseconds kPeriod{100};
  if (!visible_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < next_draw_) return;
  next_draw_ = now + kPeriod;
  drawn_ = true;
  std::fprintf(stderr, "\r%s\x1b[K",
               ProgressLine(label_, done, Columns() - 1).c_str());
  std::fflush(stderr);
}

}  // namespace attendant::client::cli
