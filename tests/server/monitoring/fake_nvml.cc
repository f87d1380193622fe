// A libnvidia-ml.so.1 for tests: one GPU, whose memory clock it will not tell.
#include <cstring>

namespace {
int the_device;
constexpr int kNotSupported = 3, kNotFound = 6;
}  // namespace

extern "C" {

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }

int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (std::strcmp(uuid, "GPU-here") != 0) return kNotFound;
  *device = &the_device;
  return 0;
}

int nvmlDeviceGetUtilizationRates(void* device, unsigned* rates) {
  if (device != &the_device) return kNotFound;
  rates[0] = 37;
  rates[1] = 5;
  return 0;
}

int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 412'500;
  return 0;
}

int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  if (clock != 1) return kNotSupported;
  *mhz = 1'980;
  return 0;
}

}  // extern "C"
