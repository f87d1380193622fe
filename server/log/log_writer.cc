#include "server/log/log_writer.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "server/log/log.h"

namespace attendant::server {
namespace {

// What a pipe takes in one piece, whoever else writes to it (PIPE_BUF).
constexpr size_t kChunkBytes = 4096;
// Lines that come together leave together: waking the thread costs whoever
// logs more than the line does.
constexpr std::chrono::milliseconds kGather{5};
constexpr int kLookMs = 50;

std::atomic<int64_t> g_no_room{0};
std::atomic<int64_t> g_failed{0};

constexpr int kFatalSignals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
std::atomic<LogWriter*> g_fatal_writer{nullptr};
struct sigaction g_before[std::size(kFatalSignals)];

void OnFatalSignal(int signal) {
  if (LogWriter* writer = g_fatal_writer.exchange(nullptr)) {
    writer->WriteWithoutWaiting();
  }
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    if (kFatalSignals[i] == signal) sigaction(signal, &g_before[i], nullptr);
  }
  raise(signal);  // comes when this handler returns
}

}  // namespace

LostLogLines LostLines() { return {g_no_room, g_failed}; }

LogWriter::LogWriter(int fd, size_t buffer_bytes)
    : fd_(fd),
      capacity_(buffer_bytes),
      ring_(new char[buffer_bytes]),
      chunk_(new char[kChunkBytes]),
      thread_([this] { Run(); }) {}

LogWriter::~LogWriter() {
  Flush(kLastPatience);
  LogWriter* self = this;
  if (g_fatal_writer.compare_exchange_strong(self, nullptr)) {
    for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
      sigaction(kFatalSignals[i], &g_before[i], nullptr);
    }
  }
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void LogWriter::Append(std::string_view line) {
  bool wake = false;
  {
    std::lock_guard lock(mu_);
    const uint64_t at = appended_;
    const size_t held = at - written_;
    if (line.size() + 1 > capacity_ - held) {
      ++g_no_room;
      if (unreported_++ == 0) lost_at_ = at;
      return;
    }
    const size_t begin = at % capacity_;
    const size_t first = std::min(line.size(), capacity_ - begin);
    std::memcpy(&ring_[begin], line.data(), first);
    std::memcpy(&ring_[0], line.data() + first, line.size() - first);
    ring_[(at + line.size()) % capacity_] = '\n';
    appended_ = at + line.size() + 1;
    wake = asleep_ || held > capacity_ / 2;
    asleep_ = false;
  }
  if (wake) work_.notify_one();
}

bool LogWriter::Flush(std::chrono::milliseconds within) {
  std::unique_lock lock(mu_);
  const uint64_t until = appended_;
  ++flushing_;
  work_.notify_one();
  const bool all =
      done_.wait_for(lock, within, [&] { return written_ >= until; });
  --flushing_;
  return all;
}

void LogWriter::Run() {
  std::unique_lock lock(mu_);
  while (!stopped_) {
    asleep_ = appended_ == written_;
    work_.wait(lock, [&] { return stopped_ || appended_ != written_; });
    asleep_ = false;
    work_.wait_for(lock, kGather, [&] {
      return stopped_ || flushing_ > 0 || appended_ - written_ > capacity_ / 2;
    });
    lock.unlock();
    WriteAll();
    lock.lock();
  }
}

void LogWriter::WriteAll() {
  for (;;) {
    const uint64_t begin = written_;
    uint64_t end = appended_;
    if (unreported_ > 0) {
      if (begin < lost_at_) end = lost_at_;
      // If not even this can be written, the next lines may.
      if (begin >= lost_at_ && !ReportLost() && begin == end) return;
    }
    const size_t bytes = TakeChunk(begin, end);
    if (bytes == 0) {
      if (unreported_ == 0 || stopped_) return;
      continue;
    }
    writing_ = true;
    const bool ok = Write(chunk_.get(), bytes);
    writing_ = false;
    if (ok) {
      Done(begin + bytes, 0);
      continue;
    }
    const auto lines = std::count(&chunk_[0], &chunk_[bytes], '\n');
    Done(LineEnd(begin + bytes, end), std::max<int64_t>(lines, 1));
    if (stopped_) return;
  }
}

size_t LogWriter::TakeChunk(uint64_t begin, uint64_t end) {
  const size_t bytes = std::min<uint64_t>(end - begin, kChunkBytes);
  const size_t at = begin % capacity_;
  const size_t first = std::min(bytes, capacity_ - at);
  std::memcpy(&chunk_[0], &ring_[at], first);
  std::memcpy(&chunk_[first], &ring_[0], bytes - first);
  const void* last = memrchr(&chunk_[0], '\n', bytes);
  if (last == nullptr) return bytes;
  return static_cast<const char*>(last) - &chunk_[0] + 1;
}

uint64_t LogWriter::LineEnd(uint64_t from, uint64_t end) const {
  while (from < end && ring_[(from - 1) % capacity_] != '\n') ++from;
  return from;
}

bool LogWriter::Write(const char* bytes, size_t size) {
  while (size > 0) {
    while (dying_) pause();
    pollfd out{fd_, POLLOUT, 0};
    if (poll(&out, 1, kLookMs) == 0) {
      if (stopped_) return false;
      continue;
    }
    const ssize_t written = ::write(fd_, bytes, size);
    if (written < 0 && errno != EINTR && errno != EAGAIN) return false;
    if (written <= 0) continue;
    last_written_ = bytes[written - 1];
    bytes += written;
    size -= static_cast<size_t>(written);
  }
  return true;
}

bool LogWriter::ReportLost() {
  const int64_t lost = unreported_;
  // A line that was cut off ends here.
  const std::string line =
      (last_written_ == '\n' ? "" : "\n") +
      RenderLogLine(std::chrono::system_clock::now(), LogLevel::kWarning,
                    "log lines were lost: they came faster than they could be "
                    "written",
                    {{"lines", lost}}) +
      '\n';
  if (!Write(line.data(), line.size())) return false;
  std::lock_guard lock(mu_);
  unreported_ -= lost;
  lost_at_ = appended_.load();
  return true;
}

void LogWriter::Done(uint64_t until, int64_t lost_lines) {
  {
    std::lock_guard lock(mu_);
    written_ = until;
    if (lost_lines > 0) {
      g_failed += lost_lines;
      if (unreported_ == 0) lost_at_ = until;
      unreported_ += lost_lines;
    }
  }
  done_.notify_all();
}

void LogWriter::FlushOnFatalSignals() {
  g_fatal_writer = this;
  struct sigaction action {};
  action.sa_handler = OnFatalSignal;
  action.sa_flags = SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kFatalSignals); ++i) {
    sigaction(kFatalSignals[i], &action, &g_before[i]);
  }
}

void LogWriter::WriteWithoutWaiting() {
  dying_ = true;
  // A write under way ends soon, or never.
  for (int wait = 0; wait < 100 && writing_; ++wait) poll(nullptr, 0, 1);
  while (written_ < appended_) {
    const size_t at = written_ % capacity_;
    const size_t bytes = std::min({static_cast<size_t>(appended_ - written_),
                                   capacity_ - at, kChunkBytes});
    pollfd out{fd_, POLLOUT, 0};
    if (poll(&out, 1, 0) != 1) return;
    const ssize_t written = ::write(fd_, &ring_[at], bytes);
    if (written <= 0) return;
    written_ += static_cast<uint64_t>(written);
  }
}

}  // namespace attendant::server
