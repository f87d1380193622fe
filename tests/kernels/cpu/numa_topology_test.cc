#include "kernels/cpu/numa_topology.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

namespace attendant::kernels::cpu {
namespace {

namespace fs = std::filesystem;

// A folder as /sys/devices/system/node, removed at the end.
class FakeNodes {
 public:
  FakeNodes() : root_(fs::path(::testing::TempDir()) / "numa_nodes") {
    fs::remove_all(root_);
    fs::create_directories(root_ / "power");
    std::ofstream(root_ / "possible") << "0-1\n";
  }
  ~FakeNodes() { fs::remove_all(root_); }
  void Add(const std::string& name, const std::string& cpulist) {
    fs::create_directories(root_ / name);
    std::ofstream(root_ / name / "cpulist") << cpulist << "\n";
  }
  std::string root() const { return root_.string(); }

 private:
  const fs::path root_;
};

std::vector<int> Cpus(int n) {
  std::vector<int> cpus(n);
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

TEST(NumaTopologyTest, CpuListsAreRead) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11\n"),
            (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("5"), std::vector<int>{5});
  for (const char* bad : {"", "\n", "x", "1-", "1;2", "-"}) {
    EXPECT_TRUE(ParseCpuList(bad).empty()) << bad;
  }
}

TEST(NumaTopologyTest, NodesComeInTheirOrderWithoutForbiddenOrMissingCpus) {
  FakeNodes nodes;
  nodes.Add("node10", "12-15");
  nodes.Add("node2", "0-7");
  nodes.Add("node3", "");  // memory alone
  nodes.Add("node4", "8-11");
  nodes.Add("nodes", "0-15");
  std::vector<int> allowed = Cpus(11);
  allowed.push_back(14);
  const NumaTopology topology = ReadNumaTopology(nodes.root(), allowed);
  ASSERT_EQ(topology.num_nodes(), 3);
  EXPECT_EQ(topology.cpus_of_node[0], Cpus(8));
  EXPECT_EQ(topology.cpus_of_node[1], (std::vector<int>{8, 9, 10}));
  EXPECT_EQ(topology.cpus_of_node[2], std::vector<int>{14});
  EXPECT_EQ(topology.NodeOfCpu(9), 1);
  EXPECT_EQ(topology.NodeOfCpu(99), 0);
  EXPECT_EQ(topology.NodeOfCpu(-1), 0);
}

TEST(NumaTopologyTest, WithoutNodesThereIsOne) {
  const NumaTopology topology = ReadNumaTopology("/nowhere", Cpus(3));
  ASSERT_EQ(topology.num_nodes(), 1);
  EXPECT_EQ(topology.cpus_of_node[0], Cpus(3));
}

TEST(NumaTopologyTest, ThreadsAreSpreadByTheNodesCpus) {
  const NumaTopology even{{{0, 1}, {2, 3}}};
  EXPECT_EQ(even.NodesOfThreads(4), (std::vector<int>{0, 0, 1, 1}));
  EXPECT_EQ(even.NodesOfThreads(5), (std::vector<int>{0, 0, 1, 1, 1}));
  EXPECT_EQ(even.NodesOfThreads(3), (std::vector<int>{0, 0, 0}));
  const NumaTopology uneven{{{0, 1, 2, 3, 4, 5}, {6, 7}}};
  EXPECT_EQ(uneven.NodesOfThreads(8),
            (std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(NumaTopologyTest, ThisMachineHasACpu) {
  const NumaTopology topology = MachineNumaTopology();
  ASSERT_GE(topology.num_nodes(), 1);
#ifdef __linux__
  EXPECT_FALSE(topology.cpus_of_node[0].empty());
  EXPECT_GE(CurrentCpu(), 0);
#endif
}

}  // namespace
}  // namespace attendant::kernels::cpu
