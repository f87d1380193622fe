// The README's capability matrix is the table of kernels/capabilities.cc: every
// row of this build stands in it, letter by letter, in the same order.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "kernels/attention.h"

namespace attendant::kernels {
namespace {

std::string Mark(bool served) { return served ? "yes" : "-"; }

std::string Devices(const Capability& row) {
  if (row.max_compute_capability == 0) return "CPU";
  std::string text = "GPU " + std::to_string(row.min_compute_capability / 10) +
                     "." + std::to_string(row.min_compute_capability % 10);
  return row.min_compute_capability == row.max_compute_capability
             ? text
             : text + " and later";
}

std::string Types(const Capability& row) {
  std::string text;
  for (auto [served, name] :
       {std::pair{row.fp32, "fp32"}, {row.fp16, "fp16"}, {row.bf16, "bf16"}}) {
    if (served) text += (text.empty() ? "" : " ") + std::string(name);
  }
  return text;
}

std::string Row(const Capability& row) {
  std::string text = "|";
  for (const std::string& cell :
       {std::string(row.kernel), Devices(row), Types(row),
        "1.." + std::to_string(row.max_head_dim), Mark(row.boolean_mask),
        Mark(row.additive_mask), Mark(row.alibi), Mark(row.softcap),
        Mark(row.sinks), Mark(row.window)}) {
    text += " " + cell + " |";
  }
  return text;
}

TEST(ReadmeTest, CapabilityMatrixIsTheTable) {
  std::ifstream file(ATTENDANT_SOURCE_DIR "/README.md");
  const std::string readme((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  size_t position = readme.find("<!-- capabilities -->");
  ASSERT_NE(position, std::string::npos);
  for (const KernelEntry& kernel : Kernels()) {
    const std::string row = Row(kernel.capability);
    const size_t found = readme.find(row, position);
    ASSERT_NE(found, std::string::npos)
        << "README.md lacks, or has in another order:\n"
        << row;
    position = found;
  }
}

}  // namespace
}  // namespace attendant::kernels
