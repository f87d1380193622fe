// Partial results of the decode kernel for few rows: each consumer thread owns
// the same columns of every partial result, in registers and in memory.
#pragma once

#include <cstdint>

#include "kernels/sm90/decode_item.cuh"
#include "kernels/sm90/decode_merge.cuh"
#include "kernels/sm90/decode_output.cuh"
#include "kernels/sm90/decode_table.h"

namespace attendant::kernels::sm90 {

// A thread's share: kVectors rows of one quad of columns.
template <typename Shape>
struct FewShare {
  static constexpr int kQuads = Shape::kHeadDim / 4;
  static constexpr int kVectors =
      (Shape::kRows * kQuads + Shape::kConsumers - 1) / Shape::kConsumers;
  static_assert(Shape::kConsumers % kQuads == 0);

  // Packed row of the thread's vector k; kRows or more: it has none.
  static __device__ __forceinline__ int Row(int k) {
    return (threadIdx.x + k * Shape::kConsumers) / kQuads;
  }
  static __device__ __forceinline__ int Column() {
    return threadIdx.x % kQuads * 4;
  }
};

// The one order in which partial results are ever merged: chunks to octets,
// octets to groups of four, groups to the strand, all counted from key 0.
struct FewFold {
  FoldedVector octet, group, strand;

  // Before chunk number `chunk` is appended to `octet`.
  __device__ __forceinline__ void Begin(int chunk) {
    if (chunk % kFewOctet == 0) EndOctet();
    if (chunk % kFewGroup == 0) EndGroup();
  }
  __device__ __forceinline__ void EndOctet() {
    group.Append(octet);
    octet = FoldedVector();
  }
  __device__ __forceinline__ void EndGroup() {
    strand.Append(group);
    group = FoldedVector();
  }
  __device__ __forceinline__ void End() {
    EndOctet();
    EndGroup();
  }
};

// A slot in memory: kRows rows of O, then (m, l) of each.
template <typename Shape>
struct FewSlot {
  static constexpr int kFloats = Shape::kRows * (Shape::kHeadDim + 2);
  float* base;

  __device__ __forceinline__ FewSlot(const DecodeParams& params, int slot)
      : base(params.partials + static_cast<int64_t>(slot) * kFloats) {}
  __device__ __forceinline__ float4* o(int row, int column) const {
    return reinterpret_cast<float4*>(base + row * Shape::kHeadDim + column);
  }
  __device__ __forceinline__ float2* ml(int row) const {
    return reinterpret_cast<float2*>(base + Shape::kRows * Shape::kHeadDim) +
           row;
  }
  __device__ __forceinline__ FoldedVector Load(int row, int column) const {
    const float4 v = __ldcg(o(row, column));
    const float2 rest = __ldcg(ml(row));
    return {rest.x, rest.y, {v.x, v.y, v.z, v.w}};
  }
  __device__ __forceinline__ void Store(const FoldedVector& vector, int row,
                                        int column) const {
    const float(&v)[4] = vector.o;
    __stcg(o(row, column), make_float4(v[0], v[1], v[2], v[3]));
    if (column == 0) __stcg(ml(row), make_float2(vector.m, vector.l));
  }
};

// What an item holds that has not met its tail: three slots, see DecodeTails.
template <typename Shape>
__device__ __forceinline__ void StoreFold(const DecodeParams& params,
                                          int first_slot, const FewFold& fold,
                                          int row, int column) {
  FewSlot<Shape>(params, first_slot).Store(fold.octet, row, column);
  FewSlot<Shape>(params, first_slot + 1).Store(fold.group, row, column);
  FewSlot<Shape>(params, first_slot + 2).Store(fold.strand, row, column);
}
template <typename Shape>
__device__ __forceinline__ FewFold LoadFold(const DecodeParams& params,
                                            int first_slot, int row,
                                            int column) {
  return {FewSlot<Shape>(params, first_slot).Load(row, column),
          FewSlot<Shape>(params, first_slot + 1).Load(row, column),
          FewSlot<Shape>(params, first_slot + 2).Load(row, column)};
}

// One vector of all slots of the item's strand, folded as if one block had seen
// its chunks. What is not there has seen nothing; so there is no branch, and
// the loads of 16 slots are in flight.
template <typename Shape>
__device__ __forceinline__ FoldedVector FoldSlots(const DecodeParams& params,
                                                  const DecodeItem& item,
                                                  int row, int column) {
  // Slots are chunks, octets or groups; 16 of them at once, counted from a
  // multiple of kFewGroup.
  const int before = item.first_unit % kFewGroup;
  FewFold fold;
  for (int begin = -before; begin < item.slots; begin += 16) {
    FoldedVector slots[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const int number = begin + j;
      const bool is_there = number >= 0 && number < item.slots;
      const FewSlot<Shape> slot(params,
                                item.first_slot + (is_there ? number : 0));
      const float4 o = is_there ? __ldcg(slot.o(row, column)) : float4{};
      const float2 ml =
          is_there ? __ldcg(slot.ml(row)) : float2{-INFINITY, 0.0f};
      slots[j] = {ml.x, ml.y, {o.x, o.y, o.z, o.w}};
    }
    // `octet` takes the slots, whatever they are, until its place is reached.
    // Long runs without a branch let appends overlap.
    if (item.unit == kFewOctet) {
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        fold.octet.Append(slots[j]);
        if (j % 4 == 3) fold.End();
      }
      continue;
    }
#pragma unroll
    for (int i = 0; i < 16; i += kFewOctet) {
#pragma unroll
      for (int j = i; j < i + kFewOctet; ++j) fold.octet.Append(slots[j]);
      if (item.unit == 1) fold.EndOctet();
    }
    if (item.unit == 1 && (begin + before + 16) % kFewGroup == 0) {
      fold.EndGroup();
    }
  }
  if (item.unit == kFewGroup) return fold.octet;
  fold.End();
  return fold.strand;
}

template <typename Element>
__device__ __forceinline__ void StoreFewFinal(const DecodeParams& params,
                                              const DecodeItem& item,
                                              const FoldedVector& strand,
                                              int row, int column) {
  const RowTarget target = TargetOf(item, row);
  const RowEnd end = FinishRow(strand.m, strand.l, target.sink_log2);
  float values[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) values[e] = __fmul_rn(strand.o[e], end.inverse);
  StoreColumns<Element>(params, *item.problem, target.out, column, values);
  if (target.lse != nullptr && column == 0) *target.lse = end.lse;
}

}  // namespace attendant::kernels::sm90
