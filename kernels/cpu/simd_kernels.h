// The vectorised pieces of the CPU backend, as one table of functions for each
// instruction set. The loops over blocks, heads and sequences that call them
// (tile_attention.cc, decode_attention.cc) are plain C++.
//
// Two forms of attention are built of these pieces:
// - tile: `lanes` * vecs rows of Q at once, one row in each vector lane. S and
//   P are stored transposed, [key][row], so softmax needs no sum across lanes,
//   a mask's bounds are one compare, and K is read as it lies in memory.
// - decode: up to kMaxDecodeRows rows of Q that share one KV head; head_dim (or
//   keys) in the lanes, so K and V are read once, at the speed of memory.
#pragma once

#include <cstdint>

#include "kernels/base/data_type.h"

namespace attendant::kernels::cpu {

inline constexpr int kMaxVecs = 3;       // vectors of rows in one tile
inline constexpr int kMaxTileRows = 48;  // 3 vectors of 16 floats
inline constexpr int kKeyBlock = 128;    // keys per step of online softmax
inline constexpr int kMinPanel = 4;      // dims of V that are packed together
// The same in the decode form: long, for every change between K and V costs the
// latency of memory.
inline constexpr int kDecodeBlock = 512;
inline constexpr int kMaxDecodeRows = 8;     // rows * group of the decode form
inline constexpr int kMaxDecodeHeads = 8;    // KV heads that go side by side
inline constexpr int64_t kLanePadding = 16;  // floats; no vector is longer

// S[key][row] = scale * K[key] . Q[row] for num_padded keys.
struct ScoresArgs {
  const void* q;     // [head_dim][rows], bf16 operands: [head_dim / 2][rows][2]
  int vecs;          // rows = vecs * lanes
  const void* k;     // [num_keys], rows of head_dim elements, k_pitch apart
  int64_t k_pitch;   // in elements
  int num_keys;      // keys that exist; S of the rest is any finite number
  int num_padded;    // num_keys rounded up to a multiple of `key_step`
  int64_t head_dim;  // rounded up to a multiple of `dim_step`
  float scale;
  float* s;          // [num_padded][rows]
  float* block_max;  // [rows], the largest S of each row
};

// S after softcap, ALiBi, masks and bounds.
struct MaskArgs {
  float* s;  // [num_padded][rows], in place
  int vecs;
  int num_padded;
  // Per row: the keys [lo, hi) of this block that it may see.
  const int32_t* lo;
  const int32_t* hi;
  bool general;             // softcap, slopes and bias apply
  float softcap;            // 0 = none
  const float* slopes;      // [rows] or null
  const int32_t* diagonal;  // [rows], i + shift - (first key of the block)
  const float* bias;        // [num_padded][rows] or null
  bool bias_is_boolean;     // bias is 0 or -inf, and -inf hides whatever S is
  float* block_max;         // [rows]
};

// One step of online softmax: P = e^(S - max), sums, and the factor by which
// what was summed before shrinks.
struct SoftmaxArgs {
  const float* s;  // [num_padded][rows]
  // [num_padded][rows], may be s; bf16 operands: [num_padded / 2][rows][2]
  void* p;
  int vecs;
  int num_padded;
  const float* block_max;  // [rows]
  float* row_max;          // [rows], running
  float* row_sum;          // [rows], running
  float* alpha;            // [rows], out
};

// O[dim][row] = alpha[row] * O[dim][row] + sum over keys of P[key][row] V[key].
struct ValuesArgs {
  const void* p;  // as SoftmaxArgs::p
  int vecs;
  int num_padded;
  const void* v;        // the first key's place in the first packed panel
  int64_t panel_pitch;  // elements from panel to panel
  int64_t num_panels;   // of `panel` dims each
  const float* alpha;   // [rows]
  float* o;             // [num_panels * panel dims][rows]
};

// V into panels of `panel` dims of all keys, in the order that `values` wants:
// fp32 [key][dim], bf16 operands [key / 2][dim][2] or tiles of AMX. Key n, a
// multiple of key_step, starts at n * panel. Zero where a key or a dim does not
// exist or V is not finite.
struct PackValuesArgs {
  const void* v;
  DataType dtype;
  int64_t v_pitch;
  int num_keys;
  int num_padded;
  int64_t head_dim_v;
  void* packed;
  int64_t panel_pitch;
  float* row;  // scratch, head_dim_v + 2 * kLanePadding floats
};

struct TileKernels {
  int lanes;           // floats in a vector
  int key_step;        // keys come in multiples of this, padded
  int dim_step;        // so do dims of Q and K, padded with 0
  int panel;           // dims of V that are packed together
  bool bf16_operands;  // Q, K, P and V are multiplied as bf16
  // Around all calls of a thread for one task; null = nothing to do.
  void (*begin)();
  void (*end)();
  void (*scores)(const ScoresArgs&);
  void (*mask)(const MaskArgs&);
  void (*softmax)(const SoftmaxArgs&);
  void (*values)(const ValuesArgs&);
  // False if some V was not finite (and is packed as 0).
  bool (*pack_values)(const PackValuesArgs&);
};

// The KV heads of a call and how far apart their data lies. More than one only
// in fp32 (DecodeKernels of bf16 alone take one).
struct DecodeHeads {
  int count = 1;
  int64_t kv_pitch = 0;  // of k or v, in elements
  int64_t pitch = 0;     // of q, s, p, alpha and o, in floats
};

// S[row][key] = scale * Q[row] . K[key].
struct DecodeScoresArgs {
  const float* q;  // [rows][q_pitch], zero from head_dim on
  int64_t q_pitch;
  int rows;
  const void* k;
  DataType dtype;
  int64_t k_pitch;
  int num_keys;  // at most kDecodeBlock
  int64_t head_dim;
  float scale;
  float* s;  // [rows][kDecodeBlock]
  DecodeHeads heads = {};
};

// One row of S after softcap, ALiBi and mask; keys outside [lo, hi) get -inf.
struct DecodeMaskArgs {
  float* s;
  int num_keys;
  int32_t lo, hi;
  bool general;  // softcap, slope and bias apply
  float softcap;
  float slope;        // 0 = none
  int32_t diagonal;   // i + shift - (first key of the block)
  const float* bias;  // [kDecodeBlock] or null
  bool bias_is_boolean;
};

// One row's step of online softmax; P replaces S and is 0 up to the next
// multiple of kLanePadding keys.
struct DecodeSoftmaxArgs {
  float* s;
  int num_keys;
  float* row_max;
  float* row_sum;
  float* alpha;
};

// O[row] = alpha[row] * O[row] + sum over keys of P[row][key] V[key]. Where
// that is not finite, V that is not finite counts as 0, and the answer is
// false.
struct DecodeValuesArgs {
  const float* p;  // [rows][kDecodeBlock]
  int rows;
  const void* v;
  DataType dtype;
  int64_t v_pitch;
  int num_keys;
  int64_t head_dim_v;
  const float* alpha;  // [rows]
  float* o;            // [rows][o_pitch]
  int64_t o_pitch;
  DecodeHeads heads = {};
};

struct DecodeKernels {
  // Around all calls of a thread for one task; null = nothing to do.
  void (*begin)();
  void (*end)();
  void (*scores)(const DecodeScoresArgs&);
  void (*mask)(const DecodeMaskArgs&);
  void (*softmax)(const DecodeSoftmaxArgs&);
  bool (*values)(const DecodeValuesArgs&);
};

struct SimdKernels {
  const char* name;       // "AVX3_BF16", "AVX3", "AVX2", "SSE4", "EMU128", ...
  TileKernels tile_fp32;  // operands in fp32, for every input type
  TileKernels tile_bf16;  // for bf16 inputs; may equal tile_fp32
  DecodeKernels decode;   // for every input type
  DecodeKernels decode_bf16;  // for bf16 inputs; may equal decode

  // `count` elements of `dtype` to floats.
  void (*to_float)(const void* from, DataType dtype, int64_t count, float* to);
  // `count` floats times `factor` to elements of `dtype`, nearest even.
  void (*from_float)(const float* from, float factor, int64_t count,
                     DataType dtype, void* to);
  // to[c][r] = from[r][c] of 32-bit elements; pitches in elements.
  void (*transpose)(const uint32_t* from, int64_t from_pitch, int64_t rows,
                    int64_t columns, uint32_t* to, int64_t to_pitch);

  // y[i] = exp(x[i]) and tanh(x[i]), whole vectors only: for tests.
  void (*exp)(const float* x, int64_t count, float* y);
  void (*tanh)(const float* x, int64_t count, float* y);
};

}  // namespace attendant::kernels::cpu
