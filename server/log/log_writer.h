// Log lines on their way to a file descriptor, by a thread of their own: who
// logs never waits for the one who reads.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

namespace attendant::server {

// Lines that were lost since the start of the process.
struct LostLogLines {
  int64_t no_room = 0;  // the reader was too slow
  int64_t failed = 0;   // nothing could be written: no space, no reader
};
LostLogLines LostLines();

// Thread-safe. Where lines were lost, a line says how many, as soon as lines
// can be written again.
class LogWriter {
 public:
  static constexpr std::chrono::milliseconds kLastPatience{1000};

  // Holds `buffer_bytes` of lines; what finds no room is lost and counted.
  // `fd` stays the caller's.
  LogWriter(int fd, size_t buffer_bytes);
  // Flushes for kLastPatience at most.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  // `line` without its newline. Never waits for `fd`.
  void Append(std::string_view line);
  // Blocks until all that was appended is written or lost, `within` at most;
  // false if that was not enough.
  bool Flush(std::chrono::milliseconds within);

  // From here on a signal that ends the process for a fault (SIGSEGV, SIGABRT
  // and the like) first writes what this holds, as far as `fd` takes it at
  // once. One writer of a process may ask for it.
  void FlushOnFatalSignals();
  // What the handler does: no lock, no allocation.
  void WriteWithoutWaiting();

 private:
  void Run();
  void WriteAll();
  // Of the lines between the positions: as many whole ones as fit into chunk_,
  // or a chunk_ full of one that is longer. Returns their bytes, 0 = none.
  size_t TakeChunk(uint64_t begin, uint64_t end);
  // `from`, or where the line ends in whose middle it is.
  uint64_t LineEnd(uint64_t from, uint64_t end) const;
  // False if the system refuses the bytes, or if `fd` takes none while this is
  // to stop.
  bool Write(const char* bytes, size_t size);
  bool ReportLost();
  // Everything up to there is written, but for so many lines.
  void Done(uint64_t until, int64_t lost_lines);

  const int fd_;
  const size_t capacity_;
  const std::unique_ptr<char[]> ring_;
  const std::unique_ptr<char[]> chunk_;  // the writing thread's, as the next
  char last_written_ = '\n';

  // Positions count bytes since the start. Append moves appended_ with mu_
  // held, the writing thread moves written_.
  std::atomic<uint64_t> appended_{0}, written_{0};
  std::atomic<uint64_t> lost_at_{0};    // where the first of unreported_ were
  std::atomic<int64_t> unreported_{0};  // lost lines that no line tells of yet
  std::atomic<bool> writing_{false};    // a chunk is being written
  std::atomic<bool> dying_{false};      // the signal handler has taken over
  std::atomic<bool> stopped_{false};

  std::mutex mu_;
  std::condition_variable work_;  // there are lines in a hurry, or it must stop
  std::condition_variable done_;  // written_ moved
  bool asleep_ = false;           // guarded by mu_, as the next
  int flushing_ = 0;
  std::thread thread_;
};

}  // namespace attendant::server
