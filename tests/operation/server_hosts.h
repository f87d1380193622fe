// Three places that servers can live at, as three machines would have.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace attendant::testing {

// Network namespaces joined to this one by a cable each, if asked for and the
// system lets us (root); else distinct loopback addresses.
class ServerHosts {
 public:
  static constexpr int kCount = 3;

  explicit ServerHosts(bool namespaces);
  ~ServerHosts();
  ServerHosts(const ServerHosts&) = delete;
  ServerHosts& operator=(const ServerHosts&) = delete;

  const std::string& address(int host) const { return addresses_[host]; }
  // What a program on the host is started by: nothing, or ip netns exec.
  std::vector<std::string> Command(int host) const;
  bool namespaces() const { return namespaces_; }
  // Of namespaces: what is sent there is lost from now on, both ways.
  void CutCable(int host) const;
  const char* kind() const {
    return namespaces_ ? "network namespaces" : "loopback addresses";
  }

 private:
  std::string NetOf(int host) const;  // three of the four numbers
  bool Connect(int host) const;
  void Disconnect() const;

  bool namespaces_;
  const int first_;  // number of the first host in this process
  std::array<std::string, kCount> addresses_;
};

}  // namespace attendant::testing
