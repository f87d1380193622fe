// Which CPUs are close to which memory.
#pragma once

#include <string>
#include <vector>

namespace attendant::kernels::cpu {

// The CPUs that this process may use on each NUMA node that has some; never
// empty.
struct NumaTopology {
  std::vector<std::vector<int>> cpus_of_node;

  int num_nodes() const { return static_cast<int>(cpus_of_node.size()); }
  // 0 for a CPU of no node.
  int NodeOfCpu(int cpu) const;
  // The node of each of `num_threads` threads, rising: as many on each node as
  // its share of the CPUs, to a thread. All on node 0 if there are not two
  // threads for each node.
  std::vector<int> NodesOfThreads(int num_threads) const;
};

// Numbers of a kernel's list, such as "0-3,8,10-11"; empty if malformed.
std::vector<int> ParseCpuList(const std::string& list);

// What `root` (/sys/devices/system/node) says in its node*/cpulist files, of
// the CPUs in `allowed`. One node of all of them where it says nothing.
NumaTopology ReadNumaTopology(const std::string& root,
                              const std::vector<int>& allowed);

// This machine's, as far as this thread's affinity reaches. Linux; one node
// elsewhere.
NumaTopology MachineNumaTopology();

// Binds the calling thread to these CPUs. False, with nothing changed, if the
// system refuses.
bool BindThisThread(const std::vector<int>& cpus);

// The CPU that runs the calling thread now; -1 if the system does not say.
int CurrentCpu();

}  // namespace attendant::kernels::cpu
