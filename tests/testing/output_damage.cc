// HostProblem::OutputDamage: which bytes a kernel had no business with.
#include <algorithm>
#include <string>

#include "tests/testing/host_problem.h"

namespace attendant::testing {
namespace {

constexpr std::byte kPoison{0xff};

bool AllPoison(const std::byte* bytes, int64_t size) {
  for (int64_t n = 0; n < size; ++n) {
    if (bytes[n] != kPoison) return false;
  }
  return true;
}

// Finds a non-poison byte of `buffer` that `owned` does not name.
std::string ForeignByte(const GuardedBuffer& buffer,
                        const std::vector<bool>& owned, const char* name) {
  const std::span<const std::byte> whole = buffer.whole();
  const int64_t first = buffer.data() - whole.data();
  for (int64_t n = 0; n < static_cast<int64_t>(whole.size()); ++n) {
    const int64_t at = n - first;
    const bool ours = at >= 0 && at < buffer.size() && owned[at];
    if (!ours && whole[n] != kPoison) {
      return std::string(name) + " has a byte written at " +
             std::to_string(at) + ", which no row owns";
    }
  }
  return {};
}

}  // namespace

std::string HostProblem::OutputDamage() const {
  const kernels::AttentionProblem& p = problem_;
  const int64_t size = SizeOf(p.output_dtype);
  const int64_t entries = out_.size() == 0     ? 0
                          : p.out.batch_stride ? p.batch
                                               : 1;
  std::vector<bool> owned(out_.size());
  for (int64_t b = 0; b < entries; ++b) {
    for (int64_t row = 0; row < p.rows_q; ++row) {
      for (int64_t head = 0; head < p.num_q_heads; ++head) {
        const int64_t first = (b * p.out.batch_stride + row * p.out.row_stride +
                               head * p.out.head_stride) *
                              size;
        for (int64_t d = 0; d < p.head_dim_v; ++d) {
          if (AllPoison(out_.data() + first + d * size, size)) {
            return "O was not written at batch " + std::to_string(b) + " row " +
                   std::to_string(row) + " head " + std::to_string(head) +
                   " dim " + std::to_string(d);
          }
        }
        std::fill_n(owned.begin() + first, p.head_dim_v * size, true);
      }
    }
  }
  std::string damage = ForeignByte(out_, owned, "O");
  if (!damage.empty() || lse_.empty()) return damage;
  for (int64_t n = 0; n < lse_.size() / 4; ++n) {
    if (AllPoison(lse_.data() + 4 * n, 4)) {
      return "LSE was not written at " + std::to_string(n);
    }
  }
  return ForeignByte(lse_, std::vector<bool>(lse_.size(), true), "LSE");
}

}  // namespace attendant::testing
