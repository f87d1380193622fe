/* The client of Attendant as a C interface, for any language that can call C.
 *
 *   attendant_client* client;
 *   attendant_error* error =
 *       attendant_client_create("localhost:50051", NULL, &client);
 *   attendant_attend_args args = {.struct_size = sizeof args};
 *   args.q = (attendant_tensor){.data = q, .shape = shape, .rank = 4,
 *                               .dtype = ATTENDANT_FP32};   // k, v too
 *   attendant_result* result;
 *   error = attendant_attend(client, &args, 10000000000, NULL, &result);
 *   const attendant_reply* reply = attendant_result_reply(result);
 *
 * Meanings are those of proto/attendant/v1/attention.proto. Structs that a
 * caller fills begin with their size: fields of a later version read as 0.
 * Every function may be called from any thread. Functions that can fail return
 * NULL, or an error that the caller frees. No exception leaves the library.
 */
#ifndef ATTENDANT_CLIENT_C_H_
#define ATTENDANT_CLIENT_C_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when a struct, a field or a function is added; see
 * attendant_abi_version. */
#define ATTENDANT_ABI_VERSION 4

/* Numbers of attendant.v1.DataType, Layout and CausalAlignment. */
enum {
  ATTENDANT_FP32 = 1,
  ATTENDANT_FP16 = 2,
  ATTENDANT_BF16 = 3,
  ATTENDANT_BOOL = 6,     /* masks: one byte an entry, 0 = drop */
  ATTENDANT_BOOL_BITS = 7 /* masks: eight entries a byte, lowest bit first */
};
enum { ATTENDANT_BSHD = 1, ATTENDANT_BHSD = 2, ATTENDANT_THD = 3 };
enum { ATTENDANT_TOP_LEFT = 1, ATTENDANT_BOTTOM_RIGHT = 2 };
/* Where a tensor lies; numbers are DLPack's. */
enum { ATTENDANT_HOST = 0, ATTENDANT_CPU = 1, ATTENDANT_CUDA = 2 };

/* Options that are present: zero is a value, not "unset". */
enum {
  ATTENDANT_HAS_SOFTMAX_SCALE = 1,
  ATTENDANT_HAS_SOFTCAP = 2,
  ATTENDANT_HAS_WINDOW_LEFT = 4,
  ATTENDANT_HAS_WINDOW_RIGHT = 8,
  ATTENDANT_HAS_CUDA_STREAM = 16
};

/* What went wrong. code is gRPC's number; field, value and bound say what was
 * at fault with which part of the request ("q.shape[3]", "257", "1..256") and
 * are "" for errors of the transport. Never NULL. */
typedef struct attendant_error {
  int32_t code;
  const char* message;
  const char* field;
  const char* value;
  const char* bound;
} attendant_error;
void attendant_error_free(attendant_error* error); /* NULL is legal */

/* ATTENDANT_ABI_VERSION of the library, and its version ("0.1.0"). */
int32_t attendant_abi_version(void);
const char* attendant_version(void);

typedef struct attendant_client attendant_client;

typedef struct attendant_client_options {
  size_t struct_size;
  /* How tensors travel, by the names of client/cpp/door.h; NULL = "unary".
   * "auto" chooses for every call, "ipc" is for tensors in GPU memory. A name
   * that is none is INVALID_ARGUMENT, a door that this build or the server has
   * not UNIMPLEMENTED, both for the field "door". */
  const char* door;
  /* PEM text; NULL or "" = not given. */
  const char* root_certificates;
  const char* client_certificate;
  const char* client_key;
  const char* server_name;
  const char* token;
  int32_t tls;
  int32_t allow_token_without_tls;
  int32_t connections;        /* 0 = 1 */
  int32_t max_attempts;       /* 0 = 5; 1 = never repeat */
  int64_t stall_timeout_ms;   /* 0 = 20,000 */
  int64_t initial_backoff_ms; /* 0 = 100 */
  int64_t max_backoff_ms;     /* 0 = 5,000 */
  int32_t max_async_calls;    /* threads for attendant_attend_start; 0 = 64 */
  int32_t balance;            /* calls go in turn to all of target's servers */
} attendant_client_options;

/* Connects at the first call. options may be NULL. A target of several
 * addresses by commas means balance, which the doors of one server have not. */
attendant_error* attendant_client_create(
    const char* target, const attendant_client_options* options,
    attendant_client** client);
/* Cancels asynchronous calls and waits for them; blocking calls must have
 * returned. NULL is legal. */
void attendant_client_free(attendant_client* client);

/* A tensor of the caller's, readable until the call has ended. dtype 0 = not
 * given. strides in elements, >= 0, innermost 1; NULL = contiguous. */
typedef struct attendant_tensor {
  const void* data;
  const int64_t* shape;
  const int64_t* strides;
  int32_t rank;
  int32_t dtype;
  int32_t device_type; /* ATTENDANT_HOST, _CPU (the same) or _CUDA */
  int32_t device_index;
} attendant_tensor;

/* Memory for an answer: as many bytes as the answer has, or data NULL for
 * memory of the result's own. By door "ipc" it may be the GPU's. */
typedef struct attendant_buffer {
  void* data;
  int64_t num_bytes;
} attendant_buffer;

typedef struct attendant_attend_args {
  size_t struct_size;
  attendant_tensor q, k, v; /* or qkv */
  attendant_tensor qkv;
  attendant_tensor mask;
  attendant_buffer out, lse;
  /* Lists and their number of entries; copied before the call is sent. */
  const int32_t* cu_seqlens_q;
  const int32_t* cu_seqlens_k;
  const int64_t* seqlens_q;
  const int64_t* seqlens_k;
  const int64_t* starts_q;
  const int64_t* starts_k;
  const float* alibi_slopes;
  const float* sinks;
  int64_t num_cu_seqlens_q;
  int64_t num_cu_seqlens_k;
  int64_t num_seqlens_q;
  int64_t num_seqlens_k;
  int64_t num_starts_q;
  int64_t num_starts_k;
  int64_t num_alibi_slopes;
  int64_t num_sinks;
  const char* request_id;   /* NULL = none */
  const char* ordering_key; /* NULL = none */
  int64_t num_q_heads;      /* of qkv with GQA */
  int64_t num_kv_heads;
  int64_t window_left;
  int64_t window_right;
  float softmax_scale;
  float softcap;
  float dropout_p;
  uint32_t present; /* ATTENDANT_HAS_... */
  int32_t layout;   /* 0 = ATTENDANT_BSHD */
  int32_t compute_dtype;
  int32_t output_dtype;
  int32_t causal;
  int32_t alignment;
  int32_t return_lse;
  int32_t priority;
  /* With ATTENDANT_HAS_CUDA_STREAM: a CUstream (NULL = the default one) that
   * writes tensors in GPU memory and uses out and lse; the call waits for what
   * it was given so far. Without: the caller has synchronised. The answer is in
   * out and lse when the call has ended. */
  void* cuda_stream;
} attendant_attend_args;

typedef struct attendant_stage_times { /* nanoseconds */
  int64_t receive_ns;
  int64_t queue_ns;
  int64_t upload_ns;
  int64_t kernel_ns;
  int64_t download_ns;
  int64_t send_ns;
  int64_t total_ns;
} attendant_stage_times;

/* Strings are UTF-8 and never NULL; everything lives as long as the result. */
typedef struct attendant_reply {
  attendant_tensor out; /* contiguous; in args.out if that was given */
  attendant_tensor lse; /* dtype 0 if it was not asked for */
  const char* request_id;
  const char* backend; /* "cpu", "cuda" */
  const char* device_uuid;
  const char* kernel;
  const char* door; /* what carried the tensors */
  int32_t device_index;
  int32_t compute_dtype;
  attendant_stage_times exposed; /* add up to total_ns */
  attendant_stage_times busy;    /* may overlap */
  int64_t batch_requests;
  int64_t batch_tokens;
  int64_t workspace_bytes;
  int64_t input_bytes;
  int64_t output_bytes;
  int64_t attempts;
  int64_t client_ns;
} attendant_reply;

typedef struct attendant_result attendant_result;
const attendant_reply* attendant_result_reply(const attendant_result* result);
void attendant_result_free(attendant_result* result); /* NULL is legal */

/* Ends calls early: each call given this object fails with CANCELLED once it is
 * requested, and at once if it was before. Free it when those have ended. */
typedef struct attendant_cancel attendant_cancel;
attendant_cancel* attendant_cancel_create(void);
void attendant_cancel_request(attendant_cancel* cancel);
void attendant_cancel_free(attendant_cancel* cancel); /* NULL is legal */

/* For bindings to languages where asking an array object for its fields is
 * dear: where those are, in bytes from its address. */
typedef struct attendant_array_layout {
  int32_t type;  /* a pointer */
  int32_t data;  /* a pointer */
  int32_t rank;  /* an int32_t */
  int32_t shape; /* a pointer to rank sizes of int64_t */
  int32_t dtype; /* a pointer */
  int32_t flags; /* an int32_t */
} attendant_array_layout;

/* An array object, and what it is to be. */
typedef struct attendant_array {
  const void* object;
  const void* type; /* looked at first: without it nothing else is read */
  const void* dtype;
  const int64_t* shape; /* rank sizes */
  int32_t rank;
  int32_t flags; /* each of these bits is to be set */
  void** place;  /* receives data */
} attendant_array;

/* 1 = each of the objects is what it is to be and all places are set; 0 = one
 * is not. The caller sees to it that nobody changes them meanwhile. */
int32_t attendant_place_arrays(const attendant_array_layout* layout,
                               const attendant_array* arrays,
                               int32_t num_arrays);

/* Blocks for the answer, timeout_ns (> 0) at most, retries included. cancel may
 * be NULL. Afterwards nobody reads or writes the caller's memory. */
attendant_error* attendant_attend(attendant_client* client,
                                  const attendant_attend_args* args,
                                  int64_t timeout_ns, attendant_cancel* cancel,
                                  attendant_result** result);

/* A call that is made often, its tensors placed where the client's door moves
 * them from without a copy ("unary": where the caller has them). */
typedef struct attendant_prepared attendant_prepared;

/* Where the tensors and buffers lie: fill q, k and v before a call, read out
 * and lse after it. NULL for what was not given. The door's, until the client
 * is freed, or the caller's own, to be kept as long as the prepared call. */
typedef struct attendant_placed {
  void* q;
  void* k;
  void* v;
  void* qkv;
  void* mask;
  void* out;
  void* lse;
} attendant_placed;

/* Copies tensors that move. args.out, and args.lse if it is asked for, must be
 * given. Doors of GPU memory prepare tensors that lie there already. */
attendant_error* attendant_prepare(attendant_client* client,
                                   const attendant_attend_args* args,
                                   attendant_prepared** prepared);
const attendant_placed* attendant_prepared_memory(
    const attendant_prepared* prepared);
/* As attendant_attend; one call at a time for one prepared call. */
attendant_error* attendant_attend_prepared(attendant_client* client,
                                           attendant_prepared* prepared,
                                           int64_t timeout_ns,
                                           attendant_cancel* cancel,
                                           attendant_result** result);
void attendant_prepared_free(attendant_prepared* prepared); /* NULL is legal */

/* An asynchronous call. */
typedef struct attendant_call attendant_call;

/* Called once, on a thread of the library, with an error or a result, which
 * are the callee's to free. It may free the call, not the client. */
typedef void (*attendant_callback)(void* user_data, attendant_error* error,
                                   attendant_result* result);

/* As attendant_attend, without waiting: timeout_ns counts from here, tensors
 * and buffers are lent until the call has ended. callback may be NULL: then
 * attendant_call_wait tells the end and attendant_call_take gives the answer.
 * call may be NULL where there is a callback. An error: the call never began,
 * its callback is never called. */
attendant_error* attendant_attend_start(attendant_client* client,
                                        const attendant_attend_args* args,
                                        int64_t timeout_ns,
                                        attendant_callback callback,
                                        void* user_data, attendant_call** call);
/* 1 once the call has ended, 0 after timeout_ns (negative = for ever). */
int32_t attendant_call_wait(attendant_call* call, int64_t timeout_ns);
/* The outcome of a call without a callback, once: waits for it. */
attendant_error* attendant_call_take(attendant_call* call,
                                     attendant_result** result);
void attendant_call_cancel(attendant_call* call);
/* A call that has not ended goes on, and its answer is dropped. */
void attendant_call_free(attendant_call* call); /* NULL is legal */

typedef struct attendant_device {
  int32_t index;
  int32_t compute_capability; /* 90 for Hopper, 0 for a CPU */
  int32_t num_sms;            /* CPU: worker threads */
  int64_t memory_bytes;
  const char* uuid;
  const char* name;
  const char* backend;
  const char* instruction_set;
} attendant_device;

/* A bound by its name in attendant.v1.Bounds. */
typedef struct attendant_bound {
  const char* name;
  int64_t value;
} attendant_bound;

/* One row of the table that says which kernel runs what. */
typedef struct attendant_capability {
  const char* kernel;
  const char* backend;
  const char* op;
  const int32_t* input_dtypes;
  const int32_t* output_dtypes;
  int64_t num_input_dtypes;
  int64_t num_output_dtypes;
  int64_t max_head_dim;
  int32_t min_compute_capability;
  int32_t max_compute_capability;
  int32_t boolean_mask;
  int32_t additive_mask;
  int32_t alibi;
  int32_t softcap;
  int32_t sinks;
  int32_t window;
} attendant_capability;

typedef struct attendant_server_info {
  const char* version;
  const char* build;
  int64_t uptime_ns;
  const attendant_device* devices;
  const attendant_bound* bounds;
  const attendant_capability* capabilities;
  int64_t num_devices;
  int64_t num_bounds;
  int64_t num_capabilities;
} attendant_server_info;

attendant_error* attendant_get_server_info(attendant_client* client,
                                           int64_t timeout_ns,
                                           attendant_server_info** info);
void attendant_server_info_free(attendant_server_info* info);

#ifdef __cplusplus
}
#endif

#endif /* ATTENDANT_CLIENT_C_H_ */
