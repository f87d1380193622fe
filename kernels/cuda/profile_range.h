// A named range on the timeline of NVIDIA's profilers (NVTX, domain
// "attendant"). Without a profiler attached it is a test of one pointer. The
// headers are the toolkit's, and no library is linked; a toolkit without them
// (PyPI's has none) gives no ranges.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTENDANT_HAS_NVTX 1
#endif

namespace attendant::kernels::cuda {

// From construction to destruction, on one thread, nested as scopes are.
class ProfileRange {
 public:
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

#ifdef ATTENDANT_HAS_NVTX
  // `name` is a literal.
  explicit ProfileRange(const char* name) {
    nvtxEventAttributes_t event{};
    event.version = NVTX_VERSION;
    event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    event.messageType = NVTX_MESSAGE_TYPE_ASCII;
    event.message.ascii = name;
    nvtxDomainRangePushEx(Domain(), &event);
  }
  ~ProfileRange() { nvtxDomainRangePop(Domain()); }

 private:
  static nvtxDomainHandle_t Domain() {
    static const nvtxDomainHandle_t domain = nvtxDomainCreateA("attendant");
    return domain;
  }
#else
  explicit ProfileRange(const char*) {}
  ~ProfileRange() {}
#endif
};

}  // namespace attendant::kernels::cuda
