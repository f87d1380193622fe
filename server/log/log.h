// One-line JSON log on stderr:
//   {"time":"2026-01-02T03:04:05.678Z","level":"info","message":"...",...}
#pragma once

#include <chrono>
#include <concepts>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

namespace attendant::server {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// One more key of the line. Strings are escaped; numbers and booleans are not
// quoted; a number that JSON cannot write (NaN, inf) is null.
struct LogField {
  LogField(std::string_view key, std::string_view text);
  LogField(std::string_view key, const char* text)
      : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, const std::string& text)
      : LogField(key, std::string_view(text)) {}
  LogField(std::string_view key, bool value)
      : name(key), json(value ? "true" : "false") {}
  LogField(std::string_view key, double value);
  template <std::integral Integer>
  LogField(std::string_view key, Integer value)
      : name(key), json(std::to_string(value)) {}

  // Left out of the line if `text` is empty.
  static LogField Optional(std::string_view key, std::string_view text) {
    return {text.empty() ? std::string_view() : key, text};
  }

  std::string name;  // empty = not in the line
  std::string json;
};

// Writes one line if `level` is at least the level set. Any thread.
void Log(LogLevel level, std::string_view message,
         std::initializer_list<LogField> fields = {});

bool LogEnabled(LogLevel level);
void SetLogLevel(LogLevel level);
// "debug", "info", "warning" or "error"; false leaves `level` alone.
bool ParseLogLevel(std::string_view name, LogLevel* level);
const char* LogLevelName(LogLevel level);

// "2026-01-02T03:04:05.678Z", UTC.
std::string FormatLogTime(std::chrono::system_clock::time_point time);

// The line without its newline.
std::string RenderLogLine(std::chrono::system_clock::time_point time,
                          LogLevel level, std::string_view message,
                          std::initializer_list<LogField> fields);

// Where lines go from now on (null = stderr, by whoever logs). Called with a
// lock held: it must neither log nor wait.
void SetLogSink(std::function<void(const std::string& line)> sink);

}  // namespace attendant::server
