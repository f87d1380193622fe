#include "server/log.h"

#include <unistd.h>

#include <atomic>
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

std::string Quote(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        quoted += "\\\"";
        break;
      case '\\':
        quoted += "\\\\";
        break;
      case '\n':
        quoted += "\\n";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof(escape), "\\u%04x", c);
          quoted += escape;
        } else {
          quoted += c;
        }
    }
  }
  return quoted + '"';
}

}  // namespace

std::string FormatLogTime(std::chrono::system_clock::time_point time) {
  using std::chrono::duration_cast;
  using std::chrono::milliseconds;
  const auto ms = duration_cast<milliseconds>(time.time_since_epoch()).count();
  const std::time_t seconds = static_cast<std::time_t>(ms / 1000);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char date[32];
  const size_t length =
      std::strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &utc);
  char fraction[8];
  std::snprintf(fraction, sizeof(fraction), ".%03dZ",
                static_cast<int>(ms % 1000));
  return std::string(date, length) + fraction;
}

LogField::LogField(std::string_view key, std::string_view text)
    : name(key), json(Quote(text)) {}

LogField::LogField(std::string_view key, double value)
    : name(key), json("null") {
  if (!std::isfinite(value)) return;
  char number[32];
  std::snprintf(number, sizeof(number), "%.9g", value);
  json = number;
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
  std::string line = "{\"time\":\"" + FormatLogTime(time) + "\",\"level\":\"" +
                     LogLevelName(level) + "\",\"message\":" + Quote(message);
  for (const LogField& field : fields) {
    line += "," + Quote(field.name) + ":" + field.json;
  }
  return line + "}";
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
