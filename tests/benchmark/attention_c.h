/* A C interface to the kernels for benchmarks that live in another language's
   process (ctypes). Not installed, not stable.

     plan = attendant_plan_create(problems, n, "sm90", 0, error, sizeof error);
     attendant_plan_launch(plan, stream, error, sizeof error);
     attendant_plan_destroy(plan);

   Functions that can fail write a message into `error` (cut to error_size
   bytes, 0 at the end). One plan is for one thread and one stream at a time. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Strides in elements: batch entry, row, head. */
typedef struct AttendantTensor {
  void* data;
  int64_t batch_stride, row_stride, head_stride;
} AttendantTensor;

typedef struct AttendantSequence {
  int64_t q_begin, len_q, kv_begin, len_kv, diagonal_shift;
} AttendantSequence;

/* Fields as in kernels/problem.h. dtype: 0 fp32, 1 fp16, 2 bf16. */
typedef struct AttendantProblem {
  AttendantTensor q, k, v, out;
  float* lse; /* NULL = not asked */
  int64_t lse_batch_stride, lse_head_stride;
  int64_t batch, num_q_heads, num_kv_heads, head_dim, head_dim_v, rows_q;
  const AttendantSequence* sequences; /* 1 for all entries alike, or batch */
  int64_t num_sequences;
  int64_t window_left, window_right; /* -1 = open */
  const float* alibi_slopes;         /* host, num_q_heads; NULL = none */
  const float* sinks;                /* host, num_q_heads; NULL = none */
  float softmax_scale, softcap;
  int32_t dtype, output_dtype, causal;
} AttendantProblem;

typedef struct AttendantPlan AttendantPlan;

/* Plans one grouped launch on the calling thread's CUDA device (num_threads
   0), or on the CPU with so many threads, and allocates what it needs.
   `kernel`: a row of the capability table, or "" for the best. NULL if it
   fails. Tensors stay the caller's and must outlive the plan. */
AttendantPlan* attendant_plan_create(const AttendantProblem* problems,
                                     int64_t num_problems, const char* kernel,
                                     int32_t num_threads, char* error,
                                     int64_t error_size);

/* Enqueues on `stream` (cudaStream_t); on the CPU computes. 0 = good. */
int32_t attendant_plan_launch(AttendantPlan* plan, void* stream, char* error,
                              int64_t error_size);

/* Waits for the stream and redoes flagged tiles: 1 if some were, 0 if none, -1
   if it failed. Timings leave it out; random inputs never need it. */
int32_t attendant_plan_repair(AttendantPlan* plan, void* stream, char* error,
                              int64_t error_size);

/* Of problem `index`; lives as long as the process. */
const char* attendant_plan_kernel(const AttendantPlan* plan, int64_t index);
/* Device memory beside the tensors: workspace, control and descriptors. */
int64_t attendant_plan_device_bytes(const AttendantPlan* plan);
int64_t attendant_plan_workspace_bytes(const AttendantPlan* plan);

/* Reads so many bytes, whole lines of 64, once with the plan's threads (a CPU
   plan's), in pieces that each is cut into so many streams, and returns a word
   that depends on all of them: what memory gives these threads. `data` is
   aligned to 64 bytes. */
uint64_t attendant_plan_read(AttendantPlan* plan, const void* data,
                             int64_t bytes, int32_t streams);

void attendant_plan_destroy(AttendantPlan* plan);

#ifdef __cplusplus
}
#endif
