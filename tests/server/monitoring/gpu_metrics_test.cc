#include "server/monitoring/gpu_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/monitoring/metrics.h"

namespace attendant::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Text(const GpuMetrics& metrics) {
  std::vector<prometheus::MetricFamily> families;
  metrics.Append("cuda:0", &families);
  return RenderPrometheusText(families);
}

TEST(GpuMetrics, TellsInBaseUnitsAndLeavesOutWhatIsRefused) {
  const std::string text = Text(GpuMetrics("GPU-here", ATTENDANT_FAKE_NVML));
  EXPECT_THAT(text,
              HasSubstr("attendant_gpu_utilization_ratio{device=\"cuda:0\"} "
                        "0.37"));
  EXPECT_THAT(text,
              HasSubstr("attendant_gpu_power_watts{device=\"cuda:0\"} 412.5"));
  EXPECT_THAT(text, HasSubstr("clock=\"sm\"} 1980000000"));
  EXPECT_THAT(text, Not(HasSubstr("memory")));
}

TEST(GpuMetrics, WithoutLibraryOrGpuThereAreNone) {
  EXPECT_EQ(Text(GpuMetrics("", ATTENDANT_FAKE_NVML)), "");
  EXPECT_EQ(Text(GpuMetrics("GPU-here", "libnot-there.so")), "");
  EXPECT_EQ(Text(GpuMetrics("GPU-elsewhere", ATTENDANT_FAKE_NVML)), "");
}

}  // namespace
}  // namespace attendant::server
