#include "server/engine/numa_memory.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <fstream>

namespace attendant::server {
namespace {

constexpr int kMaxNodes = 64;

long SetPolicy(int mode, const unsigned long* nodes) {
  return syscall(SYS_set_mempolicy, mode, nodes,
                 nodes == nullptr ? 0 : kMaxNodes + 1);
}

}  // namespace

int NumaNodeOfPciDevice(const std::string& bus_id, const std::string& root) {
  std::string name = bus_id;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  std::ifstream file(root + "/" + name + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

PreferNumaNode::PreferNumaNode(int node) {
  if (node < 0 || node >= kMaxNodes) return;
  const unsigned long nodes = 1ul << node;
  active_ = SetPolicy(MPOL_PREFERRED, &nodes) == 0;
}

PreferNumaNode::~PreferNumaNode() {
  if (active_) SetPolicy(MPOL_DEFAULT, nullptr);
}

}  // namespace attendant::server
