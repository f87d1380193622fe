#include "tests/client/cpp/cuda/fake_cuda.h"

#include <cstdlib>
#include <cstring>

namespace attendant::client::cuda {
namespace {

constexpr Result kInvalidValue = 1;
FakeCuda* g_fake = nullptr;

std::byte* At(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);
}

}  // namespace

// The driver's functions; friends of the fake.
struct FakeCalls {
  static Result PointerGetAttributes(unsigned count, int* names, void** values,
                                     DevicePointer pointer) {
    const std::lock_guard lock(g_fake->mutex_);
    auto found = g_fake->memory_.upper_bound(At(pointer));
    if (found == g_fake->memory_.begin()) return 0;
    --found;
    const auto& [base, memory] = *found;
    if (At(pointer) >= base + memory.bytes) return 0;
    using Kind = FakeCuda::Kind;
    for (unsigned i = 0; i < count; ++i) {
      const auto set = [&](auto value) {
        std::memcpy(values[i], &value, sizeof(value));
      };
      if (names[i] == kMemoryType) set(2u);
      if (names[i] == kBufferId) set(memory.id);
      if (names[i] == kIsManaged) set(memory.kind == Kind::kManaged);
      if (names[i] == kIsIpcCapable) set(memory.kind == Kind::kMalloc);
      if (names[i] == kRangeStart) set(base);
      if (names[i] == kRangeSize) set(static_cast<size_t>(memory.bytes));
      if (names[i] == kMempoolHandle && memory.kind == Kind::kPool) set(base);
    }
    return 0;
  }

  static Result MemAlloc(DevicePointer* pointer, size_t bytes) {
    *pointer = reinterpret_cast<DevicePointer>(
        g_fake->Allocate(static_cast<int64_t>(bytes)));
    return 0;
  }

  static Result MemFree(DevicePointer pointer) {
    g_fake->Free(At(pointer));
    return 0;
  }

  static Result IpcGetMemHandle(IpcHandle* handle, DevicePointer pointer) {
    const std::lock_guard lock(g_fake->mutex_);
    const auto found = g_fake->memory_.find(At(pointer));
    if (found == g_fake->memory_.end()) return kInvalidValue;
    std::memset(handle, 0, sizeof(*handle));
    std::memcpy(handle->bytes, &pointer, sizeof(pointer));
    std::memcpy(handle->bytes + 8, &found->second.id, sizeof(uint64_t));
    return 0;
  }

  static Result StreamSynchronize(Stream stream) {
    const std::lock_guard lock(g_fake->mutex_);
    g_fake->synchronized_.push_back(stream);
    return 0;
  }
};

FakeCuda::FakeCuda() {
  g_fake = this;
  driver_.GetErrorName = [](Result, const char** name) {
    *name = "CUDA_ERROR_OF_THE_FAKE";
    return Result{0};
  };
  driver_.DeviceGetCount = [](int* count) {
    *count = 1;
    return Result{0};
  };
  driver_.DeviceGetUuid = [](Uuid* uuid, int) {
    for (int i = 0; i < 16; ++i) uuid->bytes[i] = static_cast<char>(i);
    return Result{0};
  };
  driver_.DevicePrimaryCtxRetain = [](Context* context, int) {
    *context = context;
    return Result{0};
  };
  driver_.CtxPushCurrent = [](Context) { return Result{0}; };
  driver_.CtxPopCurrent = [](Context*) { return Result{0}; };
  driver_.MemcpyHtoD = [](DevicePointer to, const void* from, size_t bytes) {
    std::memcpy(At(to), from, bytes);
    return Result{0};
  };
  driver_.MemcpyDtoH = [](void* to, DevicePointer from, size_t bytes) {
    std::memcpy(to, At(from), bytes);
    return Result{0};
  };
  driver_.PointerGetAttributes = FakeCalls::PointerGetAttributes;
  driver_.MemAlloc = FakeCalls::MemAlloc;
  driver_.MemFree = FakeCalls::MemFree;
  driver_.IpcGetMemHandle = FakeCalls::IpcGetMemHandle;
  driver_.StreamSynchronize = FakeCalls::StreamSynchronize;
}

FakeCuda::~FakeCuda() {
  for (const auto& [base, memory] : memory_) std::free(base);
  g_fake = nullptr;
}

std::byte* FakeCuda::Allocate(int64_t bytes, Kind kind) {
  const int64_t size = (bytes + 255) / 256 * 256;
  auto* base = static_cast<std::byte*>(
      std::aligned_alloc(256, static_cast<size_t>(size)));
  const std::lock_guard lock(mutex_);
  memory_[base] = {bytes, next_id_++, kind};
  return base;
}

void FakeCuda::Free(std::byte* base) {
  const std::lock_guard lock(mutex_);
  memory_.erase(base);
  std::free(base);
}

void FakeCuda::Reuse(std::byte* base) {
  const std::lock_guard lock(mutex_);
  memory_.at(base).id = next_id_++;
}

std::byte* FakeCuda::Open(const std::string& handle) const {
  std::byte* base = nullptr;
  uint64_t id = 0;
  std::memcpy(&base, handle.data(), sizeof(base));
  std::memcpy(&id, handle.data() + 8, sizeof(id));
  const std::lock_guard lock(mutex_);
  const auto found = memory_.find(base);
  return found != memory_.end() && found->second.id == id ? base : nullptr;
}

int64_t FakeCuda::allocations() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(memory_.size());
}

std::vector<Stream> FakeCuda::synchronized() const {
  const std::lock_guard lock(mutex_);
  return synchronized_;
}

}  // namespace attendant::client::cuda
