"""What a caller asks, and its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np

from attendant.errors import invalid_field
from attendant.tensor import (
    LAYOUTS,
    Array,
    dtype_number,
    encode,
    encode_mask_bits,
)
from attendant.v1 import attention_pb2 as pb

ALIGNMENTS = {
    None: pb.CAUSAL_ALIGNMENT_UNSPECIFIED,
    "top_left": pb.CAUSAL_ALIGNMENT_TOP_LEFT,
    "bottom_right": pb.CAUSAL_ALIGNMENT_BOTTOM_RIGHT,
}
_MAX_MESSAGE_BYTES = 2**32 - 1  # what one gRPC message holds


class AttendOptions(TypedDict, total=False):
    """Options of attend; the meanings are those of attention.proto.

    What is left out is unset. Lists may be numpy arrays.
    """

    layout: str  # "bshd" (unless said otherwise), "bhsd", "thd"
    dtype: str  # "bf16": what uint16 arrays hold
    qkv: Array  # packed, instead of q, k and v
    num_q_heads: int
    num_kv_heads: int
    compute_dtype: str  # "fp32", "fp16", "bf16"
    output_dtype: str
    cu_seqlens_q: Sequence[int] | Array
    cu_seqlens_k: Sequence[int] | Array
    seqlens_q: Sequence[int] | Array
    seqlens_k: Sequence[int] | Array
    starts_q: Sequence[int] | Array
    starts_k: Sequence[int] | Array
    softmax_scale: float | None
    softcap: float | None
    causal: bool
    alignment: str | None  # "top_left", "bottom_right"
    window_left: int | None
    window_right: int | None
    alibi_slopes: Sequence[float] | Array  # [heads] or [batch, heads]
    sinks: Sequence[float] | Array
    mask: Array  # bool = attend where true; floats are added
    mask_bits: bool  # send a boolean mask as bits
    return_lse: bool
    dropout_p: float
    request_id: str
    priority: int
    ordering_key: str


_LISTS = (
    "cu_seqlens_q",
    "cu_seqlens_k",
    "seqlens_q",
    "seqlens_k",
    "starts_q",
    "starts_k",
    "alibi_slopes",
    "sinks",
)
_VALUES = (
    "num_q_heads",
    "num_kv_heads",
    "softmax_scale",
    "softcap",
    "causal",
    "window_left",
    "window_right",
    "return_lse",
    "dropout_p",
    "request_id",
    "priority",
    "ordering_key",
)


def _choose(field: str, choices: dict[Any, Any], value: object) -> Any:
    if value not in choices:
        names = ", ".join(str(choice) for choice in choices if choice is not None)
        raise invalid_field(field, value, f"one of {names}")
    return choices[value]


def _set_options(request: pb.AttendRequest, options: AttendOptions) -> None:
    known = AttendOptions.__annotations__.keys()
    for name in options:
        if name not in known:
            raise TypeError(f"attend() has no option {name!r}")
    given: dict[str, Any] = dict(options)
    for name in _LISTS:
        if given.get(name) is not None:
            values = np.asarray(given[name]).reshape(-1).tolist()
            getattr(request, name).extend(values)
    for name in _VALUES:
        if given.get(name) is not None:
            try:
                setattr(request, name, given[name])
            except (TypeError, ValueError) as error:
                raise invalid_field(name, given[name], str(error)) from error
    request.alignment = _choose("alignment", ALIGNMENTS, options.get("alignment"))
    request.compute_dtype = dtype_number("compute_dtype", options.get("compute_dtype"))
    request.output_dtype = dtype_number("output_dtype", options.get("output_dtype"))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_request(
    q: Array | None, k: Array | None, v: Array | None, options: AttendOptions
) -> bytes:
    """The bytes of an AttendRequest: specs and options first, tensors last."""
    request = pb.AttendRequest()
    _set_options(request, options)
    layout = _choose("layout", LAYOUTS, options.get("layout", "bshd"))
    tensors = {"q": q, "k": k, "v": v, "qkv": options.get("qkv")}
    encoded = {
        name: encode(name, np.asarray(array), layout, options.get("dtype"))
        for name, array in tensors.items()
        if array is not None
    }
    mask = options.get("mask")
    if mask is not None and options.get("mask_bits", False):
        if mask.dtype != np.bool_:
            raise invalid_field("mask_bits", True, "False with a mask of floats")
        encoded["mask"] = encode_mask_bits(mask)
    elif mask is not None:
        encoded["mask"] = encode(
            "mask", mask, pb.LAYOUT_UNSPECIFIED, options.get("dtype")
        )
    parts: list[bytes | memoryview] = []
    for name, (spec, data) in encoded.items():
        getattr(request, name).CopyFrom(spec)
        if len(data) > 0:
            number = request.DESCRIPTOR.fields_by_name[f"{name}_data"].number
            parts += [_varint(number << 3 | 2), _varint(len(data)), data]
    parts.insert(0, request.SerializeToString())
    size = sum(len(part) for part in parts)
    if size > _MAX_MESSAGE_BYTES:
        raise invalid_field(
            "request", f"{size} bytes", f"at most {_MAX_MESSAGE_BYTES} bytes"
        )
    return b"".join(parts)
