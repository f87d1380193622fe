// The heap as callers of Client find it.
#include "client/cpp/kept_heap.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "client/cpp/attendant_client.h"

namespace attendant::client {
namespace {

int64_t PageFaults() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

// As gRPC does with an answer of 4 MiB: blocks of 64 KiB, filled, read, freed.
void TakeAndFreeAnAnswer() {
  constexpr size_t kBytes = size_t{64} << 10;
  std::vector<std::unique_ptr<std::byte[]>> blocks(64);
  for (auto& block : blocks) {
    block = std::make_unique_for_overwrite<std::byte[]>(kBytes);
    std::memset(block.get(), 1, kBytes);
  }
}

TEST(KeptHeap, AnswersAreReadIntoPagesOfAnswersBefore) {
  ASSERT_TRUE(Client::Create("localhost:1").ok());
  TakeAndFreeAnAnswer();
  const int64_t before = PageFaults();
  constexpr int kAnswers = 20;
  for (int a = 0; a < kAnswers; ++a) TakeAndFreeAnAnswer();
  // Of 1024 pages each.
  EXPECT_LT(PageFaults() - before, kAnswers * 100);
}

}  // namespace
}  // namespace attendant::client
