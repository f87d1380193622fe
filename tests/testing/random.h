// Repeatable random numbers, the same on every platform (the standard library's
// distributions are not).
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

namespace attendant::testing {

// splitmix64.
class RandomBits {
 public:
  explicit RandomBits(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // In [0, bound); bound > 0.
  int64_t Below(int64_t bound) {
    return static_cast<int64_t>(Next() % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

// Standard normal, by Box and Muller.
class NormalGenerator {
 public:
  explicit NormalGenerator(uint64_t seed) : bits_(seed) {}
  float Next() {
    if (has_spare_) {
      has_spare_ = false;
      return spare_;
    }
    const uint64_t bits = bits_.Next();
    const float u = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;
    const float angle = static_cast<float>(bits & 0xffffff) * 0x1p-24f * 2.0f *
                        std::numbers::pi_v<float>;
    const float radius = std::sqrt(-2.0f * std::log(u));
    spare_ = radius * std::sin(angle);
    has_spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  RandomBits bits_;
  float spare_ = 0;
  bool has_spare_ = false;
};

}  // namespace attendant::testing
