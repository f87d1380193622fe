#include "client/cpp/cli/watch/watch_command.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <ctime>

#include "client/cpp/cli/connection_flags.h"
#include "client/cpp/cli/watch/http_get.h"
#include "client/cpp/cli/watch/watch_frame.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

using std::chrono::steady_clock;

constexpr FlagSpec kFlags[] = {
    {"http", "HOST:PORT", "the server's HTTP port [port 9090 of --server]"},
    {"interval", "SECONDS", "between two looks [1]"},
    {"count", "N", "looks, then end [until Ctrl-C]"},
};

// SIGINT and SIGTERM end the wait instead of the program, so that the terminal
// is put right again; as they were when this goes.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~StopSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // True if one came within `seconds`.
  bool Wait(double seconds) const {
    timespec time{};
    time.tv_sec = static_cast<time_t>(seconds);
    time.tv_nsec =
        static_cast<long>((seconds - static_cast<double>(time.tv_sec)) * 1e9);
    return sigtimedwait(&signals_, nullptr, &time) > 0;
  }

 private:
  sigset_t signals_, before_;
};

// The terminal's other screen, while this lives; nothing elsewhere.
class Screen {
 public:
  explicit Screen(bool wanted)
      : visible_(wanted && isatty(STDOUT_FILENO) != 0) {
    if (visible_) std::fputs("\x1b[?1049h\x1b[?25l", stdout);
  }
  ~Screen() {
    if (visible_) std::fputs("\x1b[?25h\x1b[?1049l", stdout);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Show(const std::string& text) const {
    if (visible_) std::fputs("\x1b[H\x1b[J", stdout);
    Print(text);
    if (!visible_) Print("\n");
    std::fflush(stdout);
  }

 private:
  const bool visible_;
};

struct Settings {
  std::string http;
  double interval = 1;
  int64_t count = 0;  // 0 = no end
};

absl::StatusOr<Settings> ReadSettings(const Flags& flags) {
  Settings settings;
  const std::string target = TargetOf(flags);
  settings.http =
      flags.String("http", target.substr(0, target.rfind(':')) + ":9090");
  const auto interval = flags.Float("interval");
  if (!interval.ok()) return interval.status();
  settings.interval = interval->value_or(1);
  if (!(settings.interval > 0) || settings.interval > 3600) {
    return InvalidField("--interval", flags.String("interval"),
                        "above 0, up to 3600 s");
  }
  const auto count = flags.Int("count");
  if (!count.ok()) return count.status();
  settings.count = count->value_or(0);
  if (flags.Has("count") && settings.count < 1) {
    return InvalidField("--count", flags.String("count"), ">= 1");
  }
  return settings;
}

absl::StatusOr<MetricSamples> Scrape(const Settings& settings) {
  const absl::StatusOr<std::string> text =
      HttpGet(settings.http, "/metrics", std::chrono::seconds(5));
  if (!text.ok()) return text.status();
  return MetricSamples(*text);
}

int RunWatch(const Flags& flags) {
  const absl::StatusOr<Connection> connection = Connect(flags);
  if (!connection.ok()) return Fail(connection.status(), kUsage);
  const absl::StatusOr<Settings> settings = ReadSettings(flags);
  if (!settings.ok()) return Fail(settings.status(), kUsage);
  const absl::StatusOr<ServerInfo> info =
      connection->client.GetServerInfo(connection->timeout);
  if (!info.ok()) return Fail(info.status(), ExitCodeOf(info.status()));
  absl::StatusOr<MetricSamples> before = Scrape(*settings);
  if (!before.ok()) return Fail(before.status(), ExitCodeOf(before.status()));
  steady_clock::time_point then = steady_clock::now();
  const StopSignals stop;
  const bool json = flags.Switch("json");
  absl::Status status;
  {
    const Screen screen(!json);
    for (int64_t look = 0; settings->count == 0 || look < settings->count;
         ++look) {
      if (stop.Wait(settings->interval)) break;
      absl::StatusOr<MetricSamples> after = Scrape(*settings);
      status = after.status();
      if (!status.ok()) break;
      const steady_clock::time_point now = steady_clock::now();
      const nlohmann::ordered_json frame =
          WatchFrame(*info, *before, *after,
                     std::chrono::duration<double>(now - then).count());
      screen.Show(json ? frame.dump() : WatchText(frame));
      before = std::move(after);
      then = now;
    }
  }
  return status.ok() ? kOk : Fail(status, ExitCodeOf(status));
}

}  // namespace

Command WatchCommand() {
  return {.name = "watch",
          .arguments = "",
          .summary = "Shows a server at work, as top shows a machine.",
          .details =
              "Reads /metrics of the server's HTTP port. --json prints "
              "one object a look.\n",
          .examples =
              "attendant watch\n"
              "attendant watch --server=gpu7:50051 --http=gpu7:9090\n"
              "attendant watch --json --count=10 --interval=5\n",
          .flags = JoinFlags({kFlags, ConnectionFlags(), OutputFlags()}),
          .run = RunWatch};
}

}  // namespace attendant::client::cli
