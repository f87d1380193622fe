#include "client/cpp/borrowed_memory.h"

namespace attendant::client {

grpc::Slice BorrowedMemory::Lend(std::span<const std::byte> piece) {
  {
    std::lock_guard lock(state_->mutex);
    ++state_->lent;
  }
  // gRPC takes a mutable pointer and never writes through it.
  return grpc::Slice(const_cast<std::byte*>(piece.data()), piece.size(),
                     &BorrowedMemory::Return,
                     new std::shared_ptr<State>(state_));
}

bool BorrowedMemory::AllReturned() const {
  std::lock_guard lock(state_->mutex);
  return state_->lent == 0;
}

void BorrowedMemory::WaitUntilReturned() {
  std::unique_lock lock(state_->mutex);
  state_->returned.wait(lock, [this] { return state_->lent == 0; });
}

void BorrowedMemory::Return(void* state) {
  const std::unique_ptr<std::shared_ptr<State>> held(
      static_cast<std::shared_ptr<State>*>(state));
  std::lock_guard lock((*held)->mutex);
  if (--(*held)->lent == 0) (*held)->returned.notify_all();
}

}  // namespace attendant::client
