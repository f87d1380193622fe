// Memory on the NUMA node that a device hangs on.
#pragma once

#include <string>

namespace attendant::server {

// Of a PCI device ("0000:17:00.0", any case), as `root` says; -1 = the machine
// has one node, or does not say.
int NumaNodeOfPciDevice(const std::string& bus_id,
                        const std::string& root = "/sys/bus/pci/devices");

// While it lives, pages that this thread touches first come from `node` as long
// as there are some. Nothing happens with -1, or where the system refuses.
class PreferNumaNode {
 public:
  explicit PreferNumaNode(int node);
  ~PreferNumaNode();
  PreferNumaNode(const PreferNumaNode&) = delete;
  PreferNumaNode& operator=(const PreferNumaNode&) = delete;

  bool active() const { return active_; }

 private:
  bool active_ = false;
};

}  // namespace attendant::server
