"""numpy arrays on the wire, and back: the grpcio path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attendant.errors import invalid_field
from attendant.options import Array
from attendant.v1 import attention_pb2 as pb
from attendant.views import BFLOAT16

__all__ = ["Array", "BFLOAT16", "decode", "encode", "encode_mask_bits"]


def _wire_type(field: str, array: Array, integers_hold: str | None) -> pb.DataType:
    kind = array.dtype.newbyteorder("=")
    if kind == np.float32:
        return pb.DATA_TYPE_FP32
    if kind == np.float16:
        return pb.DATA_TYPE_FP16
    if BFLOAT16 is not None and kind == BFLOAT16:
        return pb.DATA_TYPE_BF16
    if kind == np.uint16 and integers_hold == "bf16":
        return pb.DATA_TYPE_BF16
    if kind == np.bool_:
        return pb.DATA_TYPE_BOOL
    bound = 'float32, float16, bfloat16 (or uint16 with dtype="bf16")'
    raise invalid_field(f"{field}.dtype", array.dtype, bound)


def encode(
    field: str,
    array: Array,
    layout: int,
    integers_hold: str | None,
) -> tuple[pb.TensorSpec, memoryview]:
    """The spec and the bytes of an array.

    Arrays that are not C-contiguous are copied into one that is; dimensions
    that repeat (stride 0, as broadcast_to makes them) are sent once.
    """
    number: Any = layout  # protobuf's stubs want their own enum
    spec = pb.TensorSpec(
        dtype=_wire_type(field, array, integers_hold),
        shape=array.shape,
        layout=number,
    )
    repeats = [
        stride == 0 and size > 1 and array.size > 0
        for size, stride in zip(array.shape[:-1], array.strides[:-1])
    ]
    if any(repeats):
        array = array[tuple(slice(0, 1 if r else None) for r in repeats)]
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    array = np.ascontiguousarray(array)
    if any(repeats):
        stride = array.size
        for d, size in enumerate(array.shape):
            stride //= max(size, 1)
            spec.strides.append(0 if d < len(repeats) and repeats[d] else stride)
    return spec, array.reshape(-1).view(np.uint8).data


def encode_mask_bits(array: Array) -> tuple[pb.TensorSpec, memoryview]:
    """A boolean mask, eight entries a byte, every row on a byte of its own."""
    spec = pb.TensorSpec(dtype=pb.DATA_TYPE_BOOL_BITS, shape=array.shape)
    packed = np.packbits(array, axis=-1, bitorder="little")
    return spec, np.ascontiguousarray(packed).reshape(-1).data


def decode(field: str, spec: pb.TensorSpec, data: memoryview) -> Array:
    """A new array, which owns its memory. ValueError if the bytes do not fit."""
    dtypes: dict[int, np.dtype[Any]] = {
        pb.DATA_TYPE_FP32: np.dtype("<f4"),
        pb.DATA_TYPE_FP16: np.dtype("<f2"),
        pb.DATA_TYPE_BF16: BFLOAT16 or np.dtype("<u2"),
    }
    shape: Sequence[int] = tuple(spec.shape)
    dtype = dtypes.get(spec.dtype)
    if dtype is None or min(shape, default=0) < 0:
        raise ValueError(f"{field} has dtype {spec.dtype} and shape {shape}")
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{field} has {len(data)} bytes and shape {shape}")
    return np.frombuffer(data, dtype=dtype).reshape(shape).copy()
