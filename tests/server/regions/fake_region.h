// A region in plain memory that tells whether it is still there.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/regions/region_memory.h"

namespace attendant::testing {

class FakeRegion final : public server::RegionMemory {
 public:
  enum class Reach { kHost, kDevice, kCopiesOnly };

  FakeRegion(int64_t bytes, std::atomic<int>* alive, Reach reach = Reach::kHost,
             bool writable = true)
      : data_(static_cast<size_t>(bytes)),
        alive_(alive),
        reach_(reach),
        writable_(writable) {
    ++*alive_;
  }
  ~FakeRegion() override { --*alive_; }

  int64_t bytes() const override { return static_cast<int64_t>(data_.size()); }
  bool writable() const override { return writable_; }
  std::byte* host() const override {
    return reach_ == Reach::kHost ? data() : nullptr;
  }
  std::byte* device() const override {
    return reach_ == Reach::kDevice ? data() : nullptr;
  }
  absl::Status Read(int64_t offset, int64_t bytes, std::byte* to) override {
    std::memcpy(to, data() + offset, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  absl::Status Write(int64_t offset, int64_t bytes,
                     const std::byte* from) override {
    std::memcpy(data() + offset, from, static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  std::string identity() const override {
    return std::to_string(reinterpret_cast<uintptr_t>(this));
  }
  std::byte* data() const { return const_cast<std::byte*>(data_.data()); }

 private:
  std::vector<std::byte> data_;
  std::atomic<int>* const alive_;
  const Reach reach_;
  const bool writable_;
};

}  // namespace attendant::testing
