// Conversion of whole runs of tensor elements, as fast as the compiler's
// vectors make it; the same values as kernels/base/data_type.h, bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/data_type.h"

namespace attendant::server {

// Converts `count` elements; neither pointer need be aligned, and the ranges
// must not overlap. 16-bit narrowing rounds to nearest even, fp16 overflow
// becomes inf, NaN stays a quiet NaN. Thread-safe.
void ConvertElements(const std::byte* source, kernels::DataType from,
                     std::byte* destination, kernels::DataType to,
                     int64_t count);

// The same from fp32 to a 16-bit type in place: element i of the result lies
// where element i / 2 of the source lay. `data` is aligned to 4.
void NarrowInPlace(std::byte* data, kernels::DataType to, int64_t count);

}  // namespace attendant::server
