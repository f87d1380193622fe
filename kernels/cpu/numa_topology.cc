#include "kernels/cpu/numa_topology.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>

#ifdef __linux__
#include <sched.h>
#endif

namespace attendant::kernels::cpu {

int NumaTopology::NodeOfCpu(int cpu) const {
  for (int node = 0; node < num_nodes(); ++node) {
    const std::vector<int>& cpus = cpus_of_node[node];
    if (std::find(cpus.begin(), cpus.end(), cpu) != cpus.end()) return node;
  }
  return 0;
}

std::vector<int> NumaTopology::NodesOfThreads(int num_threads) const {
  std::vector<int> nodes(num_threads, 0);
  if (num_threads < 2 * num_nodes()) return nodes;
  size_t all = 0;
  for (const std::vector<int>& cpus : cpus_of_node) all += cpus.size();
  if (all == 0) return nodes;
  size_t before = 0;  // CPUs of the nodes so far
  for (int node = 0; node < num_nodes(); ++node) {
    const auto share = [&](size_t cpus) {
      return nodes.begin() + static_cast<int64_t>(num_threads * cpus / all);
    };
    const auto begin = share(before);
    before += cpus_of_node[node].size();
    std::fill(begin, share(before), node);
  }
  return nodes;
}

std::vector<int> ParseCpuList(const std::string& list) {
  std::vector<int> cpus;
  const char* place = list.data();
  const char* const end = place + list.find_last_not_of(" \n") + 1;
  const auto number = [&](int* value) {
    const auto [after, error] = std::from_chars(place, end, *value);
    place = after;
    return error == std::errc();
  };
  while (place < end) {
    int first = 0;
    if (!number(&first)) return {};
    int last = first;
    if (place < end && *place == '-') {
      ++place;
      if (!number(&last)) return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (place < end && *place++ != ',') return {};
  }
  return cpus;
}

NumaTopology ReadNumaTopology(const std::string& root,
                              const std::vector<int>& allowed) {
  std::map<int, std::vector<int>> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename().string();
    int number = 0;
    if (name.compare(0, 4, "node") != 0 ||
        std::from_chars(name.data() + 4, name.data() + name.size(), number)
                .ptr != name.data() + name.size()) {
      continue;
    }
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    for (const int cpu : ParseCpuList(list)) {
      if (std::find(allowed.begin(), allowed.end(), cpu) != allowed.end()) {
        nodes[number].push_back(cpu);
      }
    }
  }
  NumaTopology topology;
  for (auto& [number, cpus] : nodes) {
    topology.cpus_of_node.push_back(std::move(cpus));
  }
  if (topology.cpus_of_node.empty()) topology.cpus_of_node = {allowed};
  return topology;
}

#ifdef __linux__
NumaTopology MachineNumaTopology() {
  cpu_set_t set;
  std::vector<int> allowed;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
    }
  }
  return ReadNumaTopology("/sys/devices/system/node", allowed);
}

bool BindThisThread(const std::vector<int>& cpus) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int cpu : cpus) {
    if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(cpu, &set);
  }
  return sched_setaffinity(0, sizeof(set), &set) == 0;
}

int CurrentCpu() { return sched_getcpu(); }
#else
NumaTopology MachineNumaTopology() { return {.cpus_of_node = {{}}}; }
bool BindThisThread(const std::vector<int>&) { return false; }
int CurrentCpu() { return -1; }
#endif

}  // namespace attendant::kernels::cpu
