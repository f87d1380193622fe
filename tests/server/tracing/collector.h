// A collector of spans that answers every POST with one status code.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace attendant::testing {

class Collector {
 public:
  explicit Collector(int code) : code_(code) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    bind(listener_, reinterpret_cast<sockaddr*>(&address), size);
    listen(listener_, 16);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Collector() {
    Hold(false);
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  std::string url() const {
    return "http://127.0.0.1:" + std::to_string(port_);
  }
  // Of every POST that came whole.
  std::vector<std::string> bodies() const {
    std::lock_guard lock(mu_);
    return bodies_;
  }
  // Answers wait until held no more.
  void Hold(bool hold) {
    std::lock_guard lock(mu_);
    hold_ = hold;
    changed_.notify_all();
  }
  void WaitForRequests(size_t count) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return bodies_.size() >= count; });
  }

 private:
  void Serve() {
    for (int fd; (fd = accept(listener_, nullptr, nullptr)) >= 0; close(fd)) {
      std::string text;
      char buffer[16'384];
      while (!IsWhole(text)) {
        const ssize_t n = recv(fd, buffer, sizeof(buffer), 0);
        if (n <= 0) break;
        text.append(buffer, static_cast<size_t>(n));
      }
      if (!IsWhole(text)) continue;
      {
        std::unique_lock lock(mu_);
        bodies_.push_back(text.substr(text.find("\r\n\r\n") + 4));
        changed_.notify_all();
        changed_.wait(lock, [this] { return !hold_; });
      }
      const std::string answer = "HTTP/1.1 " + std::to_string(code_) +
                                 " X\r\nContent-Length: 0\r\n\r\n";
      send(fd, answer.data(), answer.size(), MSG_NOSIGNAL);
    }
  }

  static bool IsWhole(const std::string& text) {
    const size_t head = text.find("\r\n\r\n");
    const size_t length = text.find("Content-Length: ");
    return head != std::string::npos && length != std::string::npos &&
           text.size() - head - 4 >=
               std::strtoul(text.c_str() + length + 16, nullptr, 10);
  }

  const int code_;
  int listener_ = -1;
  int port_ = 0;
  mutable std::mutex mu_;
  std::condition_variable changed_;
  std::vector<std::string> bodies_;  // guarded by mu_
  bool hold_ = false;                // guarded by mu_
  std::thread thread_;
};

}  // namespace attendant::testing
