#include "client/cpp/borrowed_memory.h"

#include <grpcpp/support/byte_buffer.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace attendant::client {
namespace {

TEST(BorrowedMemory, LendsWithoutACopy) {
  const std::vector<std::byte> memory(10000);
  BorrowedMemory borrowed;
  const grpc::Slice slice = borrowed.Lend(memory);
  EXPECT_EQ(static_cast<const void*>(slice.begin()), memory.data());
  EXPECT_EQ(slice.size(), memory.size());
}

TEST(BorrowedMemory, CountsReferencesUntilTheLast) {
  const std::vector<std::byte> memory(10000);
  BorrowedMemory borrowed;
  EXPECT_TRUE(borrowed.AllReturned());
  grpc::ByteBuffer first, second;
  {
    const grpc::Slice slice = borrowed.Lend(memory);
    first = grpc::ByteBuffer(&slice, 1);
    second = first;
  }
  first.Clear();
  EXPECT_FALSE(borrowed.AllReturned());
  second.Clear();
  EXPECT_TRUE(borrowed.AllReturned());
}

TEST(BorrowedMemory, WaitsForAnotherThread) {
  const std::vector<std::byte> memory(10000);
  BorrowedMemory borrowed;
  std::vector<grpc::Slice> slices;
  for (int s = 0; s < 100; ++s) slices.push_back(borrowed.Lend(memory));
  std::atomic<bool> gone = false;
  std::thread holder([&] {
    while (slices.size() > 1) slices.pop_back();
    gone = true;
    slices.clear();
  });
  borrowed.WaitUntilReturned();
  EXPECT_TRUE(gone);
  holder.join();
}

// gRPC may drop its last reference after the borrower is gone.
TEST(BorrowedMemory, OutlivesItsOwner) {
  const std::vector<std::byte> memory(10000);
  grpc::Slice slice;
  {
    BorrowedMemory borrowed;
    slice = borrowed.Lend(memory);
  }
  slice = grpc::Slice();
}

}  // namespace
}  // namespace attendant::client
