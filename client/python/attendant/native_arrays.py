"""numpy's arrays by their headers: the library looks at all of a call at once.

Asking each for its shape, type, order and address takes Python as long as all
the rest of a call.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from attendant import native_types as types

_HEAD = object.__basicsize__  # of every object; its type's address is the last
_LAYOUT = types.ArrayLayout(
    type=_HEAD - 8,
    data=_HEAD,
    rank=_HEAD + 8,
    shape=_HEAD + 16,
    dtype=_HEAD + 40,
    flags=_HEAD + 48,
)
CONTIGUOUS, WRITEABLE = 0x1, 0x400  # numpy's flags
STEP = ctypes.sizeof(types.Array) // 8


def _number(address: int, kind: Any = ctypes.c_size_t) -> int:
    value: int = kind.from_address(address).value
    return value


def _is_so(array: Any) -> bool:
    """Whether this numpy keeps the fields where _LAYOUT has them."""
    at = id(array)
    flags = array.flags
    wanted = CONTIGUOUS * flags.c_contiguous | WRITEABLE * flags.writeable
    found = (
        _number(at + _LAYOUT.type) == id(type(array))
        and _number(at + _LAYOUT.data) == array.__array_interface__["data"][0]
        and _number(at + _LAYOUT.rank, ctypes.c_int32) == array.ndim
        and _number(at + _LAYOUT.dtype) == id(array.dtype)
        and _number(at + _LAYOUT.flags, ctypes.c_int32) & (CONTIGUOUS | WRITEABLE)
        == wanted
    )
    sizes = _number(at + _LAYOUT.shape) if found else 0
    return found and array.shape == tuple(
        _number(sizes + 8 * d, ctypes.c_int64) for d in range(array.ndim)
    )


def _layout() -> Any:
    """For the library to read; None where it would read something else.

    Without a GIL a thread may change an array meanwhile; only in CPython is an
    id an address.
    """
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return None
    if sys.implementation.name != "cpython":
        return None
    probes = [
        np.zeros((2, 3, 5), np.float16),
        np.zeros((7, 4), np.float32)[:, 1:3],
        np.frombuffer(bytes(6), np.uint16),
    ]
    return ctypes.byref(_LAYOUT) if all(map(_is_so, probes)) else None


LAYOUT = _layout()


class Places:
    """What a call's arrays are to be, and where in its struct their data go."""

    def __init__(self, kinds: list[tuple[Any, Any, int]], args: types.Args) -> None:
        """kinds: shape, dtype and offset in `args`; after three, answers'."""
        self.arrays = (types.Array * len(kinds))()
        self.count = ctypes.c_int32(len(kinds))
        # objects[STEP * i] is to be the id of the i-th.
        self.objects = (ctypes.c_uint64 * (STEP * len(kinds))).from_buffer(self.arrays)
        self._keep: list[Any] = [args, kinds]
        for number, (shape, dtype, offset) in enumerate(kinds):
            place = self.arrays[number]
            place.type = id(np.ndarray)
            place.dtype = id(dtype)
            place.shape = (ctypes.c_int64 * len(shape))(*shape)
            place.rank = len(shape)
            place.flags = CONTIGUOUS if number < 3 else CONTIGUOUS | WRITEABLE
            place.place = ctypes.addressof(args) + offset
