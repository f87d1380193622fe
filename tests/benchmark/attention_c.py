"""ctypes binding of libattendant_attention_c.so for torch tensors.

A tensor is [batch, rows, heads, head_dim] by strides (BSHD storage; transpose
for others), its last stride 1.
"""

import ctypes

_ERROR_SIZE = 1024
OPEN = -1  # a window side that is not bounded


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("batch_stride", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
    ]


class Sequence(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("q_begin", "len_q", "kv_begin", "len_kv", "diagonal_shift")
    ]


class Problem(ctypes.Structure):
    _fields_ = [
        ("q", Tensor),
        ("k", Tensor),
        ("v", Tensor),
        ("out", Tensor),
        ("lse", ctypes.c_void_p),
        ("lse_batch_stride", ctypes.c_int64),
        ("lse_head_stride", ctypes.c_int64),
        ("batch", ctypes.c_int64),
        ("num_q_heads", ctypes.c_int64),
        ("num_kv_heads", ctypes.c_int64),
        ("head_dim", ctypes.c_int64),
        ("head_dim_v", ctypes.c_int64),
        ("rows_q", ctypes.c_int64),
        ("sequences", ctypes.POINTER(Sequence)),
        ("num_sequences", ctypes.c_int64),
        ("window_left", ctypes.c_int64),
        ("window_right", ctypes.c_int64),
        ("alibi_slopes", ctypes.c_void_p),
        ("sinks", ctypes.c_void_p),
        ("softmax_scale", ctypes.c_float),
        ("softcap", ctypes.c_float),
        ("dtype", ctypes.c_int32),
        ("output_dtype", ctypes.c_int32),
        ("causal", ctypes.c_int32),
    ]


class AttentionError(RuntimeError):
    """What the library says about a plan or a launch that failed."""


class Library:
    """The loaded library. Makes plans."""

    def __init__(self, path):
        lib = ctypes.CDLL(path)
        pointer, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64
        lib.attendant_plan_create.restype = pointer
        lib.attendant_plan_create.argtypes = [
            ctypes.POINTER(Problem), size, text, ctypes.c_int32, text, size]
        for name in ("launch", "repair"):
            function = getattr(lib, "attendant_plan_" + name)
            function.restype = ctypes.c_int32
            function.argtypes = [pointer, pointer, text, size]
        lib.attendant_plan_kernel.restype = text
        lib.attendant_plan_kernel.argtypes = [pointer, size]
        for name in ("device_bytes", "workspace_bytes"):
            function = getattr(lib, "attendant_plan_" + name)
            function.restype = size
            function.argtypes = [pointer]
        lib.attendant_plan_read.restype = ctypes.c_uint64
        lib.attendant_plan_read.argtypes = [pointer, pointer, size,
                                            ctypes.c_int32]
        lib.attendant_plan_destroy.restype = None
        lib.attendant_plan_destroy.argtypes = [pointer]
        self.lib = lib

    def plan(self, problems, kernel="", num_threads=0):
        """One grouped launch of `problems` (see problem()). Raises
        AttentionError if no kernel (or not the named one) serves them."""
        return Plan(self.lib, problems, kernel, num_threads)


class Plan:
    """Owns the plan and its workspace; keeps the tensors alive."""

    def __init__(self, lib, problems, kernel, num_threads):
        self._lib = lib
        self._keep = problems
        array = (Problem * len(problems))(*[p.struct for p in problems])
        self._error = ctypes.create_string_buffer(_ERROR_SIZE)
        self._plan = lib.attendant_plan_create(
            array, len(problems), kernel.encode(), num_threads, self._error,
            _ERROR_SIZE)
        if not self._plan:
            raise AttentionError(self._error.value.decode())

    def launch(self, stream=0):
        if self._lib.attendant_plan_launch(self._plan, stream, self._error,
                                           _ERROR_SIZE):
            raise AttentionError(self._error.value.decode())

    def repair(self, stream=0):
        """Waits; True if tiles had to be redone."""
        result = self._lib.attendant_plan_repair(self._plan, stream,
                                                 self._error, _ERROR_SIZE)
        if result < 0:
            raise AttentionError(self._error.value.decode())
        return result == 1

    def kernel(self, index=0):
        return self._lib.attendant_plan_kernel(self._plan, index).decode()

    def device_bytes(self):
        return self._lib.attendant_plan_device_bytes(self._plan)

    def read(self, tensor, streams=1):
        """Reads a contiguous tensor once, with the plan's threads."""
        return self._lib.attendant_plan_read(
            self._plan, tensor.data_ptr(),
            tensor.numel() * tensor.element_size(), streams)

    def close(self):
        if self._plan:
            self._lib.attendant_plan_destroy(self._plan)
            self._plan = None

    def __del__(self):
        self.close()


class HeldProblem:
    """A Problem and whatever memory its pointers name."""

    def __init__(self, struct, keep):
        self.struct = struct
        self.keep = keep


def _view(tensor):
    batch, row, head, dim = tensor.stride()
    if dim != 1 and tensor.shape[3] > 1:
        raise ValueError(f"last stride is {dim}, not 1")
    return Tensor(tensor.data_ptr(), batch, row, head)


def _dtype(tensor):
    return {"torch.float32": 0, "torch.float16": 1,
            "torch.bfloat16": 2}[str(tensor.dtype)]


def problem(q, k, v, out, causal=False, bottom_right=False, scale=None,
            lse=None, softcap=0.0, window=(OPEN, OPEN)):
    """q, k, v, out: [batch, rows, heads, head_dim] tensors of whole sequences.
    lse: fp32 [batch, heads, rows_q], contiguous, or None."""
    batch, rows_q, num_q_heads, head_dim = q.shape
    len_kv = k.shape[1]
    shift = len_kv - rows_q if bottom_right else 0
    sequence = (Sequence * 1)(Sequence(0, rows_q, 0, len_kv, shift))
    struct = Problem(
        q=_view(q), k=_view(k), v=_view(v), out=_view(out),
        lse=None if lse is None else lse.data_ptr(),
        lse_batch_stride=num_q_heads * rows_q, lse_head_stride=rows_q,
        batch=batch, num_q_heads=num_q_heads, num_kv_heads=k.shape[2],
        head_dim=head_dim, head_dim_v=v.shape[3], rows_q=rows_q,
        sequences=sequence, num_sequences=1,
        window_left=window[0], window_right=window[1],
        softmax_scale=head_dim ** -0.5 if scale is None else scale,
        softcap=softcap, dtype=_dtype(q), output_dtype=_dtype(out),
        causal=int(causal))
    return HeldProblem(struct, (sequence, q, k, v, out, lse))
