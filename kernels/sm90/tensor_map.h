// Encoding of tensor maps through the driver's entry point, found at run time:
// the program links no driver and starts without one.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "kernels/base/data_type.h"
#include "kernels/problem.h"
#include "kernels/sm90/kernel_params.h"

namespace attendant::kernels::sm90 {

// Extents of a [batch, rows, heads, columns] tensor as a map sees it. Extents
// of stride 0 count as 1.
struct MapExtents {
  int64_t columns;
  int64_t rows;
  int64_t heads;
  int64_t batch;
};

// Empty if the copy engine can address the tensor, else why not: base and
// strides must be multiples of 16 bytes, strides positive and below 2^40 bytes.
std::string WhyNoMap(const char* name, const InputTensor& tensor,
                     const MapExtents& extents);

CoordinateFactors FactorsOf(const InputTensor& tensor,
                            const MapExtents& extents);

// Bytes that a miss of a copy brings into L2. Two lines are right for what
// comes again; what streams by once goes through DRAM 7 % faster by single
// lines (pure reads of 1 GB on an H200: 4.13 against 4.44 TB/s).
enum class L2Fetch { kTwoLines, kLine };

// A map with boxes of 64 columns, `box_rows` rows and `box_heads` heads in
// 128-byte swizzle, zeros outside. INTERNAL if there is no driver or it
// refuses.
absl::Status EncodeMap(const InputTensor& tensor, DataType dtype,
                       const MapExtents& extents, int box_rows, L2Fetch fetch,
                       CUtensorMap* map, int box_heads = 1);

}  // namespace attendant::kernels::sm90
