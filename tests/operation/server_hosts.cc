#include "tests/operation/server_hosts.h"

#include <unistd.h>

#include <cstdlib>

namespace attendant::testing {
namespace {

// Of this process; a cable's is at most 15 characters long.
std::string NameOf(int number) {
  return "att" + std::to_string(::getpid()) + "-" + std::to_string(number);
}

bool Succeeds(const std::string& command) {
  return std::system((command + " 2>/dev/null").c_str()) == 0;
}

// What is gone may keep its name for a while: each object has its own.
int g_made = 0;

}  // namespace

ServerHosts::ServerHosts(bool namespaces)
    : namespaces_(namespaces), first_(g_made) {
  g_made += kCount;
  for (int host = 0; host < kCount && namespaces_; ++host) {
    addresses_[host] = NetOf(host) + ".2";
    namespaces_ = Connect(host);
  }
  if (namespaces_) return;
  if (namespaces) Disconnect();
  for (int host = 0; host < kCount; ++host) {
    addresses_[host] = "127.0.0." + std::to_string(host + 2);
  }
}

ServerHosts::~ServerHosts() {
  if (namespaces_) Disconnect();
}

std::string ServerHosts::NetOf(int host) const {
  return "10.213." + std::to_string((first_ + host) % 250 + 1);
}

bool ServerHosts::Connect(int host) const {
  const std::string name = NameOf(first_ + host);
  const std::string inside = "ip -n " + name + " ";
  return Succeeds("ip netns add " + name) &&
         Succeeds("ip link add " + name + " type veth peer name eth0 netns " +
                  name) &&
         Succeeds("ip addr add " + NetOf(host) + ".1/24 dev " + name) &&
         Succeeds("ip link set " + name + " up") &&
         Succeeds(inside + "addr add " + NetOf(host) + ".2/24 dev eth0") &&
         Succeeds(inside + "link set eth0 up") &&
         Succeeds(inside + "link set lo up");
}

void ServerHosts::Disconnect() const {
  for (int host = 0; host < kCount; ++host) {
    Succeeds("ip netns del " + NameOf(first_ + host));
  }
}

void ServerHosts::CutCable(int host) const {
  Succeeds("ip link set " + NameOf(first_ + host) + " down");
}

std::vector<std::string> ServerHosts::Command(int host) const {
  if (!namespaces_) return {};
  return {"ip", "netns", "exec", NameOf(first_ + host)};
}

}  // namespace attendant::testing
