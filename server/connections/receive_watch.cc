#include "server/connections/receive_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "server/connections/socket_bytes.h"

namespace attendant::server {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPeriod{2};
// Without a call the thread looks on for a while, so that calls one after the
// other need not wake it.
constexpr int kIdlePeriods = 500;
// Of a connection's socket, before it was looked for.
constexpr int kUnknown = -2;
// Frames and TLS records add a little to every message.
constexpr double kOverhead = 1.005;

}  // namespace

struct ReceiveWatch::Connection {
  std::string peer;
  std::map<uint64_t, Entry> calls;
  int64_t delivered = 0;  // message bytes, since the last look
  int socket = kUnknown;
  int64_t received = -1;  // at the last look; -1 = no look yet
  double held = 0;        // bytes of messages that are not whole, about
};

ReceiveWatch::ReceiveWatch(int64_t window_bytes)
    : window_bytes_(window_bytes), thread_([this] { Run(); }) {}

ReceiveWatch::~ReceiveWatch() {
  {
    std::lock_guard lock(mu_);
    stopped_ = true;
    woken_.notify_one();
  }
  thread_.join();
}

ReceiveWatch::Call::Call(ReceiveWatch* watch, const std::string& peer,
                         int64_t allowed, std::function<void()> cut_off)
    : watch_(watch), connection_(watch->Find(peer)) {
  std::lock_guard lock(watch->mu_);
  number_ = watch->next_number_++;
  connection_->calls[number_] = {allowed, connection_->received,
                                 std::move(cut_off)};
  ++watch->num_calls_;
  if (watch->asleep_) watch->woken_.notify_one();
}

ReceiveWatch::Call::~Call() {
  std::lock_guard lock(watch_->mu_);
  const auto entry = connection_->calls.find(number_);
  // gRPC drops what came of its next message: at most what it was allowed, and
  // no more than came meanwhile.
  const int64_t came =
      connection_->received - std::max<int64_t>(0, entry->second.received);
  connection_->held -= static_cast<double>(std::clamp<int64_t>(
      came, 0, entry->second.allowed + watch_->window_bytes_));
  connection_->calls.erase(entry);
  --watch_->num_calls_;
}

void ReceiveWatch::Call::Delivered(int64_t bytes, int64_t allowed) {
  std::lock_guard lock(watch_->mu_);
  connection_->delivered += bytes;
  connection_->calls[number_].allowed = allowed;
}

std::shared_ptr<ReceiveWatch::Connection> ReceiveWatch::Find(
    const std::string& peer) {
  std::lock_guard lock(mu_);
  std::shared_ptr<Connection>& connection = connections_[peer];
  if (connection == nullptr) {
    connection = std::make_shared<Connection>();
    connection->peer = peer;
  }
  return connection;
}

void ReceiveWatch::Run() {
  std::unique_lock lock(mu_);
  int idle = 0;
  while (!stopped_) {
    idle = num_calls_ > 0 ? 0 : idle + 1;
    if (idle > kIdlePeriods) {
      asleep_ = true;
      woken_.wait(lock, [this] { return stopped_ || num_calls_ > 0; });
      asleep_ = false;
      continue;
    }
    woken_.wait_for(lock, kPeriod, [this] { return stopped_; });
    std::map<uint64_t, std::function<void()>> due;
    Look(&due);
    lock.unlock();
    for (const auto& [number, cut_off] : due) cut_off();
    lock.lock();
  }
}

void ReceiveWatch::Look(std::map<uint64_t, std::function<void()>>* due) {
  for (auto at = connections_.begin(); at != connections_.end();) {
    Connection& connection = *at->second;
    if (connection.calls.empty()) {
      connection.received = -1;
      connection.held = 0;
      // Forgotten as soon as no call names it any more.
      at = at->second.use_count() == 1 ? connections_.erase(at) : std::next(at);
      continue;
    }
    ++at;
    if (connection.socket == kUnknown) {
      connection.socket = FindSocket(connection.peer);
    }
    const int64_t now = ReceivedBytes(connection.socket, connection.peer);
    if (now < 0) continue;  // gone, or not TCP
    if (connection.received >= 0) {
      connection.held += static_cast<double>(now - connection.received) -
                         kOverhead * static_cast<double>(connection.delivered);
      connection.held = std::max(0.0, connection.held);
    }
    connection.received = now;
    connection.delivered = 0;
    int64_t allowed = window_bytes_ + kSlackBytes;
    for (const auto& [number, entry] : connection.calls) {
      allowed += entry.allowed;
    }
    if (connection.held <= static_cast<double>(allowed)) continue;
    for (auto& [number, entry] : connection.calls) {
      if (entry.cut_off) {
        (*due)[number] = std::exchange(entry.cut_off, nullptr);
      }
    }
  }
}

}  // namespace attendant::server
