#include "client/cpp/shared_tensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "attendant/v1/region.pb.h"
#include "client/cpp/region_socket.h"

namespace attendant::client {
namespace {

constexpr int64_t kAlignment = 256;

using SteadyTime = std::chrono::steady_clock::time_point;

absl::Status SystemError(const char* what) {
  return absl::ResourceExhaustedError(
      absl::StrCat(what, ": ", std::strerror(errno)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedTensors>> SharedTensors::Create(
    const std::string& region_socket, const std::string& owner, int64_t bytes,
    SteadyTime deadline) {
  std::unique_ptr<SharedTensors> shared(new SharedTensors);
  int memfd = -1;
  absl::Status status = shared->MakeMemory(bytes, &memfd);
  if (status.ok())
    status = shared->Register(region_socket, owner, memfd, deadline);
  if (memfd >= 0) close(memfd);  // both sides have it mapped
  if (!status.ok()) return status;
  return shared;
}

absl::Status SharedTensors::MakeMemory(int64_t bytes, int* memfd) {
  *memfd = memfd_create("attendant", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*memfd < 0) return SystemError("memfd_create");
  if (ftruncate(*memfd, bytes) != 0) return SystemError("ftruncate");
  if (fcntl(*memfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) {
    return SystemError("F_ADD_SEALS");
  }
  void* pages = mmap(nullptr, static_cast<size_t>(bytes),
                     PROT_READ | PROT_WRITE, MAP_SHARED, *memfd, 0);
  if (pages == MAP_FAILED) return SystemError("mmap");
  range_.data = static_cast<std::byte*>(pages);
  range_.bytes = bytes;
  return absl::OkStatus();
}

absl::Status SharedTensors::Register(const std::string& region_socket,
                                     const std::string& owner, int memfd,
                                     SteadyTime deadline) {
  absl::StatusOr<std::unique_ptr<RegionSocket>> connected =
      RegionSocket::Connect(region_socket, owner, PatienceUntil(deadline));
  if (!connected.ok()) return connected.status();
  socket_ = *std::move(connected);
  socket_->SetPatience(PatienceUntil(deadline));
  v1::RegionDoorRequest hand_over;
  hand_over.mutable_register_memfd()->set_byte_length(range_.bytes);
  const auto reply = socket_->Ask(hand_over, memfd);
  if (!reply.ok()) return reply.status();
  range_.name = reply->region().name();
  return absl::OkStatus();
}

SharedTensors::SharedTensors() = default;

SharedTensors::~SharedTensors() {
  socket_.reset();
  if (range_.data != nullptr) {
    munmap(range_.data, static_cast<size_t>(range_.bytes));
  }
}

std::byte* SharedTensors::Allocate(int64_t bytes) {
  const int64_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes < 0 || begin > range_.bytes || bytes > range_.bytes - begin) {
    return nullptr;
  }
  used_ = begin + bytes;
  return range_.data + begin;
}

std::string RandomRegionOwner() {
  unsigned char bytes[16] = {};
  std::string owner;
  if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) return owner;
  for (const unsigned char byte : bytes) {
    owner += "0123456789abcdef"[byte >> 4];
    owner += "0123456789abcdef"[byte & 15];
  }
  return owner;
}

}  // namespace attendant::client
