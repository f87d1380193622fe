"""Tensors of any library that speaks DLPack, without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

_BITS_BY_CODE = {(2, 32): 1, (2, 16): 2, (4, 16): 3, (6, 8): 6}  # -> DataType
_NAME = b"dltensor"


class _DataType(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    ]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_index", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("dtype", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype = ctypes.c_void_p
_pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Lent:
    """What a producer says of its tensor; the memory is its until `keep` dies."""

    def __init__(self, producer: Any) -> None:
        # The capsule is not consumed: its own destructor gives the tensor back.
        self.keep = producer.__dlpack__()
        tensor = _Tensor.from_address(_pointer_of(self.keep, _NAME))
        rank = tensor.rank
        self.pointer: int = (tensor.data or 0) + tensor.byte_offset
        self.device_type: int = tensor.device_type
        self.device_index: int = tensor.device_index
        self.shape = tuple(tensor.shape[:rank])
        self.strides = tuple(tensor.strides[:rank]) if tensor.strides else None
        kind = (tensor.dtype.code, tensor.dtype.bits)
        self.dtype = _BITS_BY_CODE.get(kind) if tensor.dtype.lanes == 1 else None
        self.dtype_name = f"DLPack code {kind[0]} of {kind[1]} bits"
