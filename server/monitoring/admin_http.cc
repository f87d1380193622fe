#include "server/monitoring/admin_http.h"

#include <CivetServer.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

namespace attendant::server {
namespace {

// A page may use what this port serves, and nothing else.
constexpr char kContentPolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

// A connection holds a thread while it says nothing, 10 s at most: browsers
// open some ahead, and a probe must not wait behind them.
constexpr char kThreads[] = "32";

struct Answer {
  int code = 200;
  std::string type;
  std::string body;
};

Answer HealthAnswer(const std::string& why_not) {
  const std::string type = "text/plain; charset=utf-8";
  if (why_not.empty()) return {200, type, "ok\n"};
  return {503, type, why_not + "\n"};
}

class PageHandler : public CivetHandler {
 public:
  explicit PageHandler(std::function<Answer()> answer)
      : answer_(std::move(answer)) {}

  bool handleGet(CivetServer*, mg_connection* connection) override {
    return Send(connection, true);
  }
  bool handleHead(CivetServer*, mg_connection* connection) override {
    return Send(connection, false);
  }

 private:
  bool Send(mg_connection* connection, bool with_body) {
    const Answer page = answer_();
    mg_printf(connection,
              "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
              "Cache-Control: no-store\r\nConnection: close\r\n"
              "X-Content-Type-Options: nosniff\r\n"
              "Content-Security-Policy: %s\r\n\r\n",
              page.code, page.code == 200 ? "OK" : "Service Unavailable",
              page.type.c_str(), page.body.size(), kContentPolicy);
    if (with_body) mg_write(connection, page.body.data(), page.body.size());
    return true;
  }

  const std::function<Answer()> answer_;
};

// Connects to the IPv4 address HOST:port and hangs up; best effort.
void Knock(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) return;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  [[maybe_unused]] const int result = ::connect(
      fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  ::close(fd);
}

}  // namespace

class AdminHttp::Impl {
 public:
  Impl(const std::string& address, Callbacks callbacks)
      : host_(address.substr(0, address.rfind(':'))),
        callbacks_(std::move(callbacks)),
        metrics_([this] {
          return Answer{200, "text/plain; version=0.0.4; charset=utf-8",
                        callbacks_.metrics()};
        }),
        healthz_([this] { return HealthAnswer(callbacks_.why_not_live()); }),
        readyz_([this] { return HealthAnswer(callbacks_.why_not_ready()); }),
        server_(std::vector<std::string>{
            "listening_ports", address, "num_threads", kThreads,
            "request_timeout_ms", "10000", "enable_directory_listing", "no",
            "enable_keep_alive", "no"}) {
    server_.addHandler("/metrics$", metrics_);
    server_.addHandler("/healthz$", healthz_);
    server_.addHandler("/readyz$", readyz_);
    for (const Page& page : callbacks_.pages) {
      pages_.push_back(std::make_unique<PageHandler>([&page] {
        return Answer{200, page.type, page.body()};
      }));
      server_.addHandler(page.path + "$", *pages_.back());
    }
  }

  // The library's accept loop looks at its stop flag every 2 s, or when
  // somebody knocks.
  ~Impl() {
    std::atomic<bool> closed{false};
    std::thread knocker([&, port = port()] {
      while (!closed) {
        Knock(host_, port);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    });
    server_.close();
    closed = true;
    knocker.join();
  }

  int port() { return server_.getListeningPorts().at(0); }

 private:
  const std::string host_;
  const Callbacks callbacks_;
  PageHandler metrics_, healthz_, readyz_;
  std::vector<std::unique_ptr<PageHandler>> pages_;
  CivetServer server_;  // last: its threads end before the handlers go
};

AdminHttp::AdminHttp(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {
  port_ = impl_->port();
}

AdminHttp::~AdminHttp() = default;

absl::StatusOr<std::unique_ptr<AdminHttp>> AdminHttp::Start(
    const std::string& address, Callbacks callbacks) {
  try {  // the library's constructor throws; nothing of ours does
    return std::unique_ptr<AdminHttp>(
        new AdminHttp(std::make_unique<Impl>(address, std::move(callbacks))));
  } catch (const std::exception& error) {
    return absl::UnavailableError("--http is '" + address +
                                  "', which cannot be bound");
  }
}

}  // namespace attendant::server
