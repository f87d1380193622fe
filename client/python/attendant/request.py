"""What a caller asks -> its bytes: the grpcio path."""

from __future__ import annotations

from typing import Any

import numpy as np

from attendant.errors import invalid_field
from attendant.options import (
    ALIGNMENTS,
    LISTS,
    AttendOptions,
    check_names,
    choose,
    dtype_number,
    layout_number,
    numbers,
    text,
)
from attendant.tensor import encode, encode_mask_bits
from attendant.v1 import attention_pb2 as pb
from attendant.views import as_numpy

__all__ = ["AttendOptions", "encode_request"]

_MAX_MESSAGE_BYTES = 2**32 - 1  # what one gRPC message holds
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
    "priority",
)


def _set_options(request: pb.AttendRequest, options: AttendOptions) -> None:
    check_names(options)
    given: dict[str, Any] = dict(options)
    for name in LISTS:
        if given.get(name) is not None:
            getattr(request, name).extend(numbers(name, given[name]).tolist())
    for name in ("request_id", "ordering_key"):
        if given.get(name) is not None:
            setattr(request, name, text(name, given[name]).decode())
    for name in _VALUES:
        if given.get(name) is not None:
            try:
                setattr(request, name, given[name])
            except (TypeError, ValueError) as error:
                raise invalid_field(name, given[name], str(error)) from error
    loose: Any = request  # protobuf's stubs want their own enums
    loose.alignment = choose("alignment", ALIGNMENTS, options.get("alignment"))
    loose.compute_dtype = dtype_number("compute_dtype", options.get("compute_dtype"))
    loose.output_dtype = dtype_number("output_dtype", options.get("output_dtype"))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_request(q: Any, k: Any, v: Any, options: AttendOptions) -> bytes:
    """The bytes of an AttendRequest: specs and options first, tensors last."""
    request = pb.AttendRequest()
    _set_options(request, options)
    layout = layout_number(options)
    tensors = {"q": q, "k": k, "v": v, "qkv": options.get("qkv")}
    encoded = {
        name: encode(name, as_numpy(name, array), layout, options.get("dtype"))
        for name, array in tensors.items()
        if array is not None
    }
    mask = options.get("mask")
    if mask is not None:
        mask = as_numpy("mask", mask)
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
