#include "server/log/log.h"

#include <unistd.h>

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <mutex>

namespace attendant::server {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

std::atomic<LogLevel> g_level{LogLevel::kInfo};
std::mutex g_mu;
std::function<void(const std::string&)> g_sink;  // guarded by g_mu

// Appends `text` between quotes. Whole runs at once: few characters need more.
void AppendQuoted(std::string_view text, std::string* line) {
  *line += '"';
  size_t copied = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool control = static_cast<unsigned char>(c) < 0x20;
    if (!control && c != '"' && c != '\\') continue;
    line->append(text, copied, i - copied);
    copied = i + 1;
    if (c == '\n') {
      *line += "\\n";
    } else if (control) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04x", c);
      *line += escape;
    } else {
      *line += '\\';
      *line += c;
    }
  }
  line->append(text, copied, text.size() - copied);
  *line += '"';
}

std::string Quote(std::string_view text) {
  std::string quoted;
  quoted.reserve(text.size() + 2);
  AppendQuoted(text, &quoted);
  return quoted;
}

// "2026-01-02T03:04:05", UTC, kept by thread: most lines share their second.
std::string_view FormatSecond(std::time_t second) {
  thread_local std::time_t formatted = -1;
  thread_local char text[32];
  thread_local size_t length = 0;
  if (second != formatted) {
    std::tm utc{};
    gmtime_r(&second, &utc);
    length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
    formatted = second;
  }
  return {text, length};
}

}  // namespace

std::string FormatLogTime(std::chrono::system_clock::time_point time) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto ms = duration_cast<milliseconds>(time.time_since_epoch()).count();
  std::string text(FormatSecond(static_cast<std::time_t>(ms / 1000)));
  const auto fraction = static_cast<int>(ms % 1000);
  text += '.';
  for (const int unit : {100, 10, 1}) {
    text += static_cast<char>('0' + fraction / unit % 10);
  }
  text += 'Z';
  return text;
}

LogField::LogField(std::string_view key, std::string_view text)
    : name(key), json(Quote(text)) {}

LogField::LogField(std::string_view key, double value)
    : name(key), json("null") {
  if (!std::isfinite(value)) return;
  char number[32];
  const auto end = std::to_chars(number, number + sizeof(number), value,
                                 std::chars_format::general, 9);
  json.assign(number, end.ptr);
}

bool LogEnabled(LogLevel level) {
  return level >= g_level.load(std::memory_order_relaxed);
}

void SetLogLevel(LogLevel level) { g_level = level; }

bool ParseLogLevel(std::string_view name, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (name != kLevelNames[i]) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

const char* LogLevelName(LogLevel level) {
  return kLevelNames[static_cast<int>(level)];
}

std::string RenderLogLine(std::chrono::system_clock::time_point time,
                          LogLevel level, std::string_view message,
                          std::initializer_list<LogField> fields) {
  std::string line;
  line.reserve(512);
  line += "{\"time\":\"";
  line += FormatLogTime(time);
  line += "\",\"level\":\"";
  line += LogLevelName(level);
  line += "\",\"message\":";
  AppendQuoted(message, &line);
  for (const LogField& field : fields) {
    if (field.name.empty()) continue;
    line += ',';
    AppendQuoted(field.name, &line);
    line += ':';
    line += field.json;
  }
  line += '}';
  return line;
}

void Log(LogLevel level, std::string_view message,
         std::initializer_list<LogField> fields) {
  if (!LogEnabled(level)) return;
  std::string line =
      RenderLogLine(std::chrono::system_clock::now(), level, message, fields);
  std::lock_guard lock(g_mu);
  if (g_sink) {
    g_sink(line);
    return;
  }
  line += '\n';
  // One write, so that lines of several processes on one pipe stay whole.
  [[maybe_unused]] const ssize_t written =
      ::write(STDERR_FILENO, line.data(), line.size());
}

void SetLogSink(std::function<void(const std::string& line)> sink) {
  std::lock_guard lock(g_mu);
  g_sink = std::move(sink);
}

}  // namespace attendant::server
