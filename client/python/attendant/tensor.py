"""numpy arrays on the wire, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from attendant.errors import invalid_field
from attendant.v1 import attention_pb2 as pb

Array = npt.NDArray[Any]

try:
    import ml_dtypes

    BFLOAT16: np.dtype[Any] | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # bf16 then travels as uint16, with dtype="bf16"
    BFLOAT16 = None

DTYPES = {
    "fp32": pb.DATA_TYPE_FP32,
    "fp16": pb.DATA_TYPE_FP16,
    "bf16": pb.DATA_TYPE_BF16,
}
DTYPE_NAMES = {number: name for name, number in DTYPES.items()}
DTYPE_NAMES[pb.DATA_TYPE_BOOL] = "bool"
DTYPE_NAMES[pb.DATA_TYPE_BOOL_BITS] = "bool_bits"
LAYOUTS = {
    "bshd": pb.LAYOUT_BSHD,
    "bhsd": pb.LAYOUT_BHSD,
    "thd": pb.LAYOUT_THD,
}


def dtype_number(field: str, name: str | None) -> pb.DataType:
    """fp32, fp16 or bf16 as the wire's number; None = unset."""
    if name is None:
        return pb.DATA_TYPE_UNSPECIFIED
    if name not in DTYPES:
        raise invalid_field(field, name, "one of " + ", ".join(DTYPES))
    return DTYPES[name]


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
    layout: pb.Layout,
    integers_hold: str | None,
) -> tuple[pb.TensorSpec, memoryview]:
    """The spec and the bytes of an array.

    Arrays that are not C-contiguous are copied into one that is; dimensions
    that repeat (stride 0, as broadcast_to makes them) are sent once.
    """
    spec = pb.TensorSpec(
        dtype=_wire_type(field, array, integers_hold),
        shape=array.shape,
        layout=layout,
    )
    repeats = [
        stride == 0 and size > 1
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
