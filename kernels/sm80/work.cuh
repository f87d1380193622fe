// Which rows, keys and tensors a CTA works on.
#pragma once

#include <cstdint>

#include "kernels/sm80/descriptors.h"

namespace attendant::kernels::sm80 {

// A launch's blob, wherever it is.
struct Blob {
  const ProblemRecord* problems;
  const Run* runs;
  const Segment* segments;
  const float* floats;
};

__device__ __forceinline__ Blob ViewBlob(const LaunchArgs& args) {
  const std::byte* base = args.inline_blob ? args.blob_inline : args.blob;
  return {reinterpret_cast<const ProblemRecord*>(base),
          reinterpret_cast<const Run*>(base + args.runs_offset),
          reinterpret_cast<const Segment*>(base + args.segments_offset),
          reinterpret_cast<const float*>(base + args.floats_offset)};
}

// The last i of [0, count) with first(i) <= value; first(0) <= value. All lanes
// of a warp call it alike.
template <typename Value, typename First>
__device__ __forceinline__ uint32_t FindLast(uint32_t count, Value value,
                                             First first) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t low = 0;
  uint32_t high = count;
  while (high - low > 1) {
    const uint32_t step = (high - low + 31) / 32;
    const uint32_t i = low + lane * step;
    const bool before = i < high && first(i) <= value;
    const int last = __popc(__ballot_sync(0xffffffff, before)) - 1;
    low += static_cast<uint32_t>(last) * step;
    high = min(high, low + step);
  }
  return low;
}

// Rows of K or V: `data` is key 0's row of the KV head.
struct KvSource {
  const uint16_t* data;
  int64_t row;       // stride, elements
  int32_t head_dim;  // elements that exist
};

// Keys that some row of a warp may see, and that all of its rows see.
struct WarpKeys {
  int32_t begin, end;          // none outside is seen by any row
  int32_t all_begin, all_end;  // all inside are seen by every row
};
inline constexpr int kMaxWarps = 8;

// One CTA's tile: rows of one batch entry and head unit, one split of the keys.
struct TileWork {
  const uint16_t* q;  // position 0, first head of the unit
  KvSource kv[2];     // K, V
  void* out;          // position 0, first head of the unit
  float* lse;         // likewise; null = not asked
  const std::byte* mask;
  float* partial_o;  // row (position 0, first head), this split; null = none
  float* partial_ml;
  int64_t q_row, q_head;  // strides, elements
  int64_t out_row, out_head;
  int64_t lse_head;
  int64_t mask_row, mask_head;
  int64_t mask_key;                   // entry of key 0
  int64_t partial_row, partial_head;  // strides in (m, l) pairs
  const float* slopes;                // of the unit's heads; null = none
  const float* sinks;
  int32_t diagonal_shift;
  int32_t head_dim, head_dim_v;
  int32_t pack;                  // heads of the unit
  int32_t row_begin, row_count;  // packed rows: position * pack + head
  int32_t key_begin, key_end;    // keys that some row of the tile may see
  int32_t len_kv;
  int32_t lo_shift, hi_shift;
  float softmax_scale, softcap;
  DeviceMask mask_kind;
  int32_t copy_bytes;
  int32_t output_fp32, wide_output;
  WarpKeys warp_keys[kMaxWarps];  // each written and read by its warp alone
};

__device__ __forceinline__ int64_t MaskEntryBytes(DeviceMask kind) {
  switch (kind) {
    case DeviceMask::kFloat32:
      return 4;
    case DeviceMask::kFloat16:
    case DeviceMask::kBFloat16:
      return 2;
    default:
      return 1;
  }
}

// Pointers, strides and options of head unit `unit` of batch entry `b`.
__device__ __forceinline__ void SetTensors(const float* floats,
                                           const ProblemRecord& p,
                                           const Run& run, int64_t b,
                                           int64_t unit, TileWork& work) {
  const int64_t head = unit * run.pack;
  const int64_t kv_head = head / p.group;
  work.q = static_cast<const uint16_t*>(p.q) + b * p.q_batch +
           run.q_begin * p.q_row + head * p.q_head;
  work.kv[0] = {static_cast<const uint16_t*>(p.k) + b * p.k_batch +
                    run.kv_begin * p.k_row + kv_head * p.k_head,
                p.k_row, p.head_dim};
  work.kv[1] = {static_cast<const uint16_t*>(p.v) + b * p.v_batch +
                    run.kv_begin * p.v_row + kv_head * p.v_head,
                p.v_row, p.head_dim_v};
  work.out =
      static_cast<std::byte*>(p.out) +
      (p.output_fp32 ? 4 : 2) *
          (b * p.out_batch + run.q_begin * p.out_row + head * p.out_head);
  work.lse = p.lse == nullptr
                 ? nullptr
                 : p.lse + b * p.lse_batch + head * p.lse_head + run.q_begin;
  work.q_row = p.q_row;
  work.q_head = p.q_head;
  work.out_row = p.out_row;
  work.out_head = p.out_head;
  work.lse_head = p.lse_head;
  work.slopes = p.alibi_offset < 0
                    ? nullptr
                    : floats + p.alibi_offset + b * p.alibi_batch + head;
  work.sinks = p.sinks_offset < 0 ? nullptr : floats + p.sinks_offset + head;
  work.mask_kind = p.mask_kind;
  work.mask = static_cast<const std::byte*>(p.mask);
  work.mask_row = p.mask_row;
  work.mask_head = p.mask_head;
  work.mask_key = p.mask_padded_positions ? run.kv_begin : 0;
  if (p.mask_kind != DeviceMask::kNone) {
    int64_t entry = b * p.mask_batch + head * p.mask_head;
    if (p.mask_padded_positions) entry += run.q_begin * p.mask_row;
    work.mask += entry * MaskEntryBytes(p.mask_kind);
  }
  work.head_dim = p.head_dim;
  work.head_dim_v = p.head_dim_v;
  work.pack = run.pack;
  work.softmax_scale = p.softmax_scale;
  work.softcap = p.softcap;
  work.copy_bytes = p.copy_bytes;
  work.output_fp32 = p.output_fp32;
  work.wide_output = p.wide_output;
  work.len_kv = run.len_kv;
  work.lo_shift = run.lo_shift;
  work.hi_shift = run.hi_shift;
  work.diagonal_shift = run.diagonal_shift;
}

// Rows and keys of m-tile `m` and split `split`.
__device__ __forceinline__ void SetRows(const LaunchArgs& args, const Run& run,
                                        int64_t row_base, int32_t m,
                                        int32_t split, TileWork& work) {
  const int32_t rows = run.len_q * run.pack;
  work.row_begin = m * run.tile_rows;
  work.row_count = min(run.tile_rows, rows - work.row_begin);
  const int32_t first = work.row_begin / run.pack;
  const int32_t last = (work.row_begin + work.row_count - 1) / run.pack;
  work.key_begin = max(0, first + run.lo_shift);
  work.key_end = min(run.len_kv, last + run.hi_shift);
  work.partial_o = nullptr;
  work.partial_ml = nullptr;
  work.partial_row = 0;
  work.partial_head = 0;
  if (run.splits > 1) {
    const int64_t begin = static_cast<int64_t>(split) * run.split_chunk;
    work.key_begin =
        static_cast<int32_t>(max(static_cast<int64_t>(work.key_begin), begin));
    work.key_end = static_cast<int32_t>(
        min(static_cast<int64_t>(work.key_end), begin + run.split_chunk));
    const int64_t pair = row_base * run.splits + split;
    work.partial_o = args.partials + run.partial_o + pair * work.head_dim_v;
    work.partial_ml = args.partials + run.partial_ml + pair * 2;
    work.partial_row = run.splits;
    work.partial_head = static_cast<int64_t>(run.len_q) * run.splits;
  }
}

// Fills `work` for tile `t` of a segment.
__device__ __forceinline__ void SetTile(const LaunchArgs& args,
                                        const float* floats,
                                        const ProblemRecord& problem,
                                        const Run& run, const Segment& segment,
                                        uint32_t t, TileWork& work) {
  uint32_t split = 0;
  if (run.splits > 1) {
    split = t % run.splits;
    t /= run.splits;
  }
  const uint32_t units = run.batch_count * run.head_units;
  const uint32_t section = segment.section;
  const uint32_t section_tiles = section * segment.m_count;
  const uint32_t s = t < section_tiles ? 0 : t / section_tiles;
  const uint32_t rest = t - s * section_tiles;
  const uint32_t width = min(section, units - s * section);
  const uint32_t down = rest / width;
  const uint32_t unit = s * section + (rest - down * width);
  const uint32_t batch = unit / run.head_units;
  const uint32_t head_unit = unit - batch * run.head_units;
  const int32_t m =
      segment.m_begin + segment.m_count - 1 - static_cast<int32_t>(down);
  SetTensors(floats, problem, run, run.batch_begin + batch, head_unit, work);
  const int64_t row_base =
      (static_cast<int64_t>(batch) * run.head_units + head_unit) * run.pack *
      run.len_q;
  SetRows(args, run, row_base, m, static_cast<int32_t>(split), work);
}

// Fills `work` for tile blockIdx.x. All lanes of one warp call it; lane 0
// writes. A barrier must follow.
__device__ __forceinline__ void LocateTile(const LaunchArgs& args,
                                           TileWork& work) {
  const Blob blob = ViewBlob(args);
  const uint32_t tile = blockIdx.x;
  if (args.single) {
    if (threadIdx.x != 0) return;
    SetTile(args, blob.floats, args.problem, args.run, args.segment, tile,
            work);
    return;
  }
  const uint32_t found = FindLast(args.num_segments, tile, [&](uint32_t i) {
    return blob.segments[i].first_tile;
  });
  if (threadIdx.x != 0) return;
  const Segment& segment = blob.segments[found];
  const Run& run = blob.runs[segment.run];
  SetTile(args, blob.floats, blob.problems[run.problem], run, segment,
          tile - segment.first_tile, work);
}

}  // namespace attendant::kernels::sm80
