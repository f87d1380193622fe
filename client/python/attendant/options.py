"""What a caller asks beside q, k and v."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt

from attendant.errors import invalid_field

Array = npt.NDArray[Any]

# Numbers of attendant.v1's enums: what is sent, without protobuf.
LAYOUTS = {"bshd": 1, "bhsd": 2, "thd": 3}
ALIGNMENTS = {None: 0, "top_left": 1, "bottom_right": 2}
DTYPES = {"fp32": 1, "fp16": 2, "bf16": 3}
DTYPE_BOOL = 6
DTYPE_BOOL_BITS = 7
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
DTYPE_NAMES.update({DTYPE_BOOL: "bool", DTYPE_BOOL_BITS: "bool_bits"})


class AttendOptions(TypedDict, total=False):
    """Options of attend; the meanings are those of attention.proto.

    What is left out, or None, is unset. Lists may be numpy arrays. Tensors may
    be numpy arrays, torch tensors or anything with __dlpack__.
    """

    layout: str  # "bshd" (unless said otherwise), "bhsd", "thd"
    dtype: str  # "bf16": what uint16 arrays hold
    qkv: Any  # packed, instead of q, k and v
    num_q_heads: int
    num_kv_heads: int
    compute_dtype: str | None  # "fp32", "fp16", "bf16"
    output_dtype: str | None
    cu_seqlens_q: Sequence[int] | Array | None
    cu_seqlens_k: Sequence[int] | Array | None
    seqlens_q: Sequence[int] | Array | None
    seqlens_k: Sequence[int] | Array | None
    starts_q: Sequence[int] | Array | None
    starts_k: Sequence[int] | Array | None
    softmax_scale: float | None
    softcap: float | None
    causal: bool
    alignment: str | None  # "top_left", "bottom_right"
    window_left: int | None
    window_right: int | None
    alibi_slopes: Sequence[float] | Array | None  # [heads] or [batch, heads]
    sinks: Sequence[float] | Array | None
    mask: Any  # bool = attend where true; floats are added
    mask_bits: bool  # send a boolean mask as bits
    return_lse: bool
    dropout_p: float
    request_id: str
    priority: int
    ordering_key: str
    out: Any  # contiguous memory for O: written there, and the result's `out`
    lse: Any  # the same for LSE, float32
    # The address of the CUDA stream that writes tensors in GPU memory, and uses
    # out and lse; unset = the one that is current in torch on this thread.
    cuda_stream: int | None


# Lists and what numpy calls their entries.
LISTS = {
    "cu_seqlens_q": "int32",
    "cu_seqlens_k": "int32",
    "seqlens_q": "int64",
    "seqlens_k": "int64",
    "starts_q": "int64",
    "starts_k": "int64",
    "alibi_slopes": "float32",
    "sinks": "float32",
}


def choose(field: str, choices: dict[Any, int], value: object) -> int:
    """The number of a name. INVALID_ARGUMENT for another name."""
    known = value is None or isinstance(value, str)
    number = choices.get(value) if known else None
    if number is None:
        names = ", ".join(str(choice) for choice in choices if choice is not None)
        raise invalid_field(field, value, f"one of {names}")
    return number


def dtype_number(field: str, name: str | None) -> int:
    """fp32, fp16 or bf16 as the wire's number; None = unset."""
    return 0 if name is None else choose(field, DTYPES, name)


def layout_number(options: AttendOptions) -> int:
    """The layout as the wire's number; None = unset."""
    layout = options.get("layout")
    return choose("layout", LAYOUTS, "bshd" if layout is None else layout)


def integer(field: str, value: Any) -> int:
    """An int, or what stands for one exactly. INVALID_ARGUMENT for all else."""
    try:
        return int(value) if isinstance(value, np.bool_) else operator.index(value)
    except TypeError as error:
        raise invalid_field(field, value, "an integer") from error


def text(field: str, value: Any, *, shown: bool = True) -> bytes:
    """UTF-8. INVALID_ARGUMENT for what is no text, or none that C can read."""
    try:
        encoded = value.encode() if isinstance(value, str) else b"\0"
    except UnicodeEncodeError:
        encoded = b"\0"
    if b"\0" in encoded:
        given = ascii(value) if shown else "another"
        raise invalid_field(field, given, "text without byte 0")
    return encoded


def numbers(field: str, values: Any) -> Array:
    """A list of LISTS as one dimension of its type. INVALID_ARGUMENT for others."""
    wanted = np.dtype(LISTS[field])
    array: Array = np.asarray(values).reshape(-1)
    if array.dtype == wanted:
        return array
    bound = f"values of {wanted}"
    try:
        converted = array.astype(wanted)
    except (TypeError, ValueError, OverflowError) as error:
        raise invalid_field(field, array.tolist(), bound) from error
    if array.size > 0 and wanted.kind != "f" and not np.array_equal(converted, array):
        raise invalid_field(field, array.tolist(), bound)
    return converted


def check_names(options: AttendOptions) -> None:
    """TypeError for an option that there is not."""
    if not options.keys() <= AttendOptions.__annotations__.keys():
        unknown = sorted(options.keys() - AttendOptions.__annotations__.keys())
        raise TypeError(f"attend() has no option {unknown[0]!r}")
