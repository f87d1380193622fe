"""The structs of client/cpp/c_api/attendant_client_c.h, field by field."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p

ABI_VERSION = 4
HAS_SOFTMAX_SCALE, HAS_SOFTCAP, HAS_WINDOW_LEFT, HAS_WINDOW_RIGHT = 1, 2, 4, 8
HAS_CUDA_STREAM = 16


class Error(Structure):
    """attendant_error."""

    _fields_ = [
        ("code", c_int32),
        ("message", c_char_p),
        ("field", c_char_p),
        ("value", c_char_p),
        ("bound", c_char_p),
    ]


class ClientOptions(Structure):
    """attendant_client_options."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("door", c_char_p),
        ("root_certificates", c_char_p),
        ("client_certificate", c_char_p),
        ("client_key", c_char_p),
        ("server_name", c_char_p),
        ("token", c_char_p),
        ("tls", c_int32),
        ("allow_token_without_tls", c_int32),
        ("connections", c_int32),
        ("max_attempts", c_int32),
        ("stall_timeout_ms", c_int64),
        ("initial_backoff_ms", c_int64),
        ("max_backoff_ms", c_int64),
        ("max_async_calls", c_int32),
        ("balance", c_int32),
    ]


class Tensor(Structure):
    """attendant_tensor."""

    _fields_ = [
        ("data", c_void_p),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("rank", c_int32),
        ("dtype", c_int32),
        ("device_type", c_int32),
        ("device_index", c_int32),
    ]


class Buffer(Structure):
    """attendant_buffer."""

    _fields_ = [("data", c_void_p), ("num_bytes", c_int64)]


class Args(Structure):
    """attendant_attend_args."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("qkv", Tensor),
        ("mask", Tensor),
        ("out", Buffer),
        ("lse", Buffer),
        ("cu_seqlens_q", c_void_p),
        ("cu_seqlens_k", c_void_p),
        ("seqlens_q", c_void_p),
        ("seqlens_k", c_void_p),
        ("starts_q", c_void_p),
        ("starts_k", c_void_p),
        ("alibi_slopes", c_void_p),
        ("sinks", c_void_p),
        ("num_cu_seqlens_q", c_int64),
        ("num_cu_seqlens_k", c_int64),
        ("num_seqlens_q", c_int64),
        ("num_seqlens_k", c_int64),
        ("num_starts_q", c_int64),
        ("num_starts_k", c_int64),
        ("num_alibi_slopes", c_int64),
        ("num_sinks", c_int64),
        ("request_id", c_char_p),
        ("ordering_key", c_char_p),
        ("num_q_heads", c_int64),
        ("num_kv_heads", c_int64),
        ("window_left", c_int64),
        ("window_right", c_int64),
        ("softmax_scale", c_float),
        ("softcap", c_float),
        ("dropout_p", c_float),
        ("present", ctypes.c_uint32),
        ("layout", c_int32),
        ("compute_dtype", c_int32),
        ("output_dtype", c_int32),
        ("causal", c_int32),
        ("alignment", c_int32),
        ("return_lse", c_int32),
        ("priority", c_int32),
        ("cuda_stream", c_void_p),
    ]


class ArrayLayout(Structure):
    """attendant_array_layout."""

    _fields_ = [
        (name, c_int32) for name in ["type", "data", "rank", "shape", "dtype", "flags"]
    ]


class Array(Structure):
    """attendant_array."""

    _fields_ = [
        ("object", c_void_p),
        ("type", c_void_p),
        ("dtype", c_void_p),
        ("shape", POINTER(c_int64)),
        ("rank", c_int32),
        ("flags", c_int32),
        ("place", c_void_p),
    ]


class Placed(Structure):
    """attendant_placed."""

    _fields_ = [
        (name, c_void_p) for name in ["q", "k", "v", "qkv", "mask", "out", "lse"]
    ]


class Reply(Structure):
    """attendant_reply; its stage times as arrays, in the header's order."""

    _fields_ = [
        ("out", Tensor),
        ("lse", Tensor),
        ("request_id", c_char_p),
        ("backend", c_char_p),
        ("device_uuid", c_char_p),
        ("kernel", c_char_p),
        ("door", c_char_p),
        ("device_index", c_int32),
        ("compute_dtype", c_int32),
        ("exposed", c_int64 * 7),
        ("busy", c_int64 * 7),
        ("batch_requests", c_int64),
        ("batch_tokens", c_int64),
        ("workspace_bytes", c_int64),
        ("input_bytes", c_int64),
        ("output_bytes", c_int64),
        ("attempts", c_int64),
        ("client_ns", c_int64),
    ]


class Device(Structure):
    """attendant_device."""

    _fields_ = [
        ("index", c_int32),
        ("compute_capability", c_int32),
        ("num_sms", c_int32),
        ("memory_bytes", c_int64),
        ("uuid", c_char_p),
        ("name", c_char_p),
        ("backend", c_char_p),
        ("instruction_set", c_char_p),
    ]


class Bound(Structure):
    """attendant_bound."""

    _fields_ = [("name", c_char_p), ("value", c_int64)]


class Capability(Structure):
    """attendant_capability."""

    _fields_ = [
        ("kernel", c_char_p),
        ("backend", c_char_p),
        ("op", c_char_p),
        ("input_dtypes", POINTER(c_int32)),
        ("output_dtypes", POINTER(c_int32)),
        ("num_input_dtypes", c_int64),
        ("num_output_dtypes", c_int64),
        ("max_head_dim", c_int64),
        ("min_compute_capability", c_int32),
        ("max_compute_capability", c_int32),
        ("boolean_mask", c_int32),
        ("additive_mask", c_int32),
        ("alibi", c_int32),
        ("softcap", c_int32),
        ("sinks", c_int32),
        ("window", c_int32),
    ]


class ServerInfo(Structure):
    """attendant_server_info."""

    _fields_ = [
        ("version", c_char_p),
        ("build", c_char_p),
        ("uptime_ns", c_int64),
        ("devices", POINTER(Device)),
        ("bounds", POINTER(Bound)),
        ("capabilities", POINTER(Capability)),
        ("num_devices", c_int64),
        ("num_bounds", c_int64),
        ("num_capabilities", c_int64),
    ]
