// One attention problem as a caller states it, and its answer. Every field has
// the meaning of the same field in proto/attendant/v1/attention.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/cpp/tensor.h"

namespace attendant::client {

enum class CausalAlignment : int {
  kUnset = 0,
  kTopLeft = 1,      // PyTorch SDPA's
  kBottomRight = 2,  // flash-attn's
};

// Memory of this process that the server reaches too, as the region `name`.
struct SharedRange {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  std::string name;
};

// Tensors and options of Attend. Views refer to the caller's memory.
struct AttendArgs {
  std::string request_id;  // at most 128 printable ASCII characters

  // Either q, k and v, or qkv; all in `layout`.
  Layout layout = Layout::kBSHD;
  TensorView q, k, v;
  // [batch, seqlen, 3, heads, head_dim] (THD: [total, 3, heads, head_dim]), or
  // [batch, seqlen, num_q_heads + 2 * num_kv_heads, head_dim] with both counts.
  TensorView qkv;
  int64_t num_q_heads = 0;
  int64_t num_kv_heads = 0;

  DataType compute_dtype = DataType::kUnset;  // unset = the input's
  DataType output_dtype = DataType::kUnset;   // unset = the input's; or fp32

  std::vector<int32_t> cu_seqlens_q, cu_seqlens_k;  // THD: batch + 1 entries
  std::vector<int64_t> seqlens_q, seqlens_k;        // padded: used rows
  std::vector<int64_t> starts_q, starts_k;          // padded: first used row

  std::optional<float> softmax_scale;  // unset = head_dim ** -0.5
  std::optional<float> softcap;
  bool causal = false;
  CausalAlignment alignment = CausalAlignment::kUnset;
  std::optional<int64_t> window_left, window_right;  // unset = open
  // fp32 [num_q_heads] or, batch by batch, [batch, num_q_heads].
  std::vector<float> alibi_slopes;
  std::vector<float> sinks;  // fp32 [num_q_heads]
  // [batch or 1, num_q_heads or 1, seqlen_q or 1, seqlen_k].
  TensorView mask;

  bool return_lse = false;
  float dropout_p = 0;   // not offered: any other value is UNIMPLEMENTED
  int32_t priority = 0;  // [-100, 100], higher is sooner
  std::string ordering_key;

  // Memory for the answer, instead of the result's own; empty, or exactly as
  // many bytes as the answer has. It is the caller's until Attend returns.
  std::span<std::byte> out;
  std::span<std::byte> lse;

  // Tensors (out and lse too) that lie in one of these, at a multiple of 256
  // bytes, do not travel: see shared_tensors.h. Nobody writes to them
  // meanwhile.
  std::vector<SharedRange> shared;

  // Door "ipc": a CUDA stream (a CUstream; null = the default one) that writes
  // the tensors and uses out and lse. The call waits for what the stream was
  // given so far. Unset: the caller has synchronised.
  std::optional<void*> cuda_stream;
};

enum class Backend : int { kUnset = 0, kCpu = 1, kCuda = 2 };
const char* Name(Backend backend);  // "cpu", "cuda"; "unset"; "?"

struct ServedBy {
  Backend backend = Backend::kUnset;
  int32_t device_index = 0;
  std::string device_uuid;
  std::string kernel;
  DataType compute_dtype = DataType::kUnset;
};

struct StageTimes {  // nanoseconds
  int64_t receive_ns = 0;
  int64_t queue_ns = 0;
  int64_t upload_ns = 0;
  int64_t kernel_ns = 0;
  int64_t download_ns = 0;
  int64_t send_ns = 0;
  int64_t total_ns = 0;
};

struct AttendResult {
  std::string request_id;
  Tensor out;  // q's layout and lengths, v's head_dim
  // fp32 [batch, num_q_heads, seqlen_q], or [num_q_heads, total_q] for THD;
  // no dtype if it was not asked for.
  Tensor lse;
  ServedBy served_by;
  StageTimes exposed;  // add up to total_ns
  StageTimes busy;     // may overlap
  int64_t batch_requests = 0;
  int64_t batch_tokens = 0;
  int64_t workspace_bytes = 0;
  int64_t input_bytes = 0;
  int64_t output_bytes = 0;
  std::string door;       // what carried the tensors (door.h)
  int attempts = 0;       // calls this answer took, 1 = no retry
  int64_t client_ns = 0;  // from the call of Attend to its return
};

}  // namespace attendant::client
