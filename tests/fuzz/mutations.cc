// The fuzz targets without libFuzzer, for every compiler and the quick tier:
//   NAME_mutations --seeds FOLDER     writes the target's seeds
//   NAME_mutations FOLDER COUNT       asks the target the seeds, and COUNT
//                                     mutations of them, always the same
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

constexpr size_t kMostBytes = 4096;
using Bytes = std::vector<uint8_t>;

std::vector<Bytes> ReadSeeds(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Bytes> seeds;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(file),
                       std::istreambuf_iterator<char>());
  }
  return seeds;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes>& seeds) : seeds_(seeds) {}

  Bytes Next() {
    Bytes bytes = seeds_[Below(seeds_.size())];
    for (size_t steps = 1 + Below(8); steps > 0; --steps) Step(&bytes);
    bytes.resize(std::min(bytes.size(), kMostBytes));
    return bytes;
  }

 private:
  size_t Below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  void Step(Bytes* bytes) {
    const size_t at = Below(bytes->size() + 1);
    const auto place = bytes->begin() + static_cast<std::ptrdiff_t>(at);
    const size_t rest = bytes->size() - at;
    switch (Below(5)) {
      case 0:  // a bit
        if (rest > 0) *place ^= static_cast<uint8_t>(1 << Below(8));
        break;
      case 1: {  // a byte that numbers end or begin with
        constexpr uint8_t kEdges[] = {0, 1, 0x7f, 0x80, 0xff};
        if (rest > 0) *place = kEdges[Below(std::size(kEdges))];
        break;
      }
      case 2:  // more of something
        bytes->insert(place, 1 + Below(16), static_cast<uint8_t>(Below(256)));
        break;
      case 3:  // less
        bytes->erase(place, place + static_cast<std::ptrdiff_t>(
                                        std::min(rest, Below(16) + 1)));
        break;
      default: {  // a piece of another seed
        const Bytes& other = seeds_[Below(seeds_.size())];
        const size_t from = Below(other.size() + 1);
        const size_t count = std::min(other.size() - from, Below(64) + 1);
        const auto piece = other.begin() + static_cast<std::ptrdiff_t>(from);
        bytes->insert(place, piece, piece + static_cast<std::ptrdiff_t>(count));
      }
    }
  }

  const std::vector<Bytes>& seeds_;
  std::mt19937 random_{1};
};

}  // namespace

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s FOLDER COUNT | --seeds FOLDER\n", argv[0]);
    return 2;
  }
  const std::vector<Bytes> seeds = ReadSeeds(argv[1]);
  if (seeds.empty()) {
    std::fprintf(stderr, "there are no seeds in %s\n", argv[1]);
    return 1;
  }
  for (const Bytes& seed : seeds) {
    LLVMFuzzerTestOneInput(seed.data(), seed.size());
  }
  Mutator mutator(seeds);
  const long count = std::atol(argv[2]);
  for (long i = 0; i < count; ++i) {
    const Bytes bytes = mutator.Next();
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  }
  std::printf("%zu seeds, %ld mutations: nothing violated\n", seeds.size(),
              count);
  return 0;
}
