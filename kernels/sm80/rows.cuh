// One output row a warp, for the kernels that come after the forward one.
#pragma once

#include <cstdint>

#include "kernels/sm80/work.cuh"

namespace attendant::kernels::sm80 {

// Row `row` of the launch (runs in order; within one, batch entry, head,
// position), one warp to a row.
struct OutputRow {
  const Run* run;
  int64_t in_run;  // (batch * num_q_heads + head) * len_q + position
  int64_t batch;   // of the problem
  int32_t head, position;
};

__device__ __forceinline__ OutputRow LocateRow(const LaunchArgs& args,
                                               const Blob& blob, int64_t row) {
  const uint32_t found = FindLast(
      args.num_runs, row, [&](uint32_t i) { return blob.runs[i].first_row; });
  OutputRow result;
  result.run = &blob.runs[found];
  const Run& run = *result.run;
  result.in_run = row - run.first_row;
  const int64_t head = result.in_run / run.len_q;
  const int64_t heads = static_cast<int64_t>(run.head_units) * run.pack;
  result.position = static_cast<int32_t>(result.in_run - head * run.len_q);
  result.batch = run.batch_begin + head / heads;
  result.head = static_cast<int32_t>(head % heads);
  return result;
}

// Tensors of the row's head unit.
__device__ __forceinline__ TileWork WorkOfRow(const Blob& blob,
                                              const OutputRow& row) {
  TileWork work;
  SetTensors(blob.floats, blob.problems[row.run->problem], *row.run, row.batch,
             row.head / row.run->pack, work);
  return work;
}

}  // namespace attendant::kernels::sm80
