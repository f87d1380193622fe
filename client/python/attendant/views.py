"""numpy arrays, torch tensors and DLPack's as memory that a call reads."""

from __future__ import annotations

import ctypes
import functools
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from attendant.dlpack import Lent
from attendant.errors import invalid_field
from attendant.options import DTYPE_BOOL, DTYPE_NAMES, DTYPES, Array

try:
    import ml_dtypes

    BFLOAT16: np.dtype[Any] | None = np.dtype(ml_dtypes.bfloat16)
except ImportError:  # bf16 is then uint16, with dtype="bf16"
    BFLOAT16 = None

CPU = 1  # DLPack's numbers
CUDA = 2
_BF16 = DTYPES["bf16"]
_NUMPY: dict[Any, int] = {
    np.dtype("<f4"): DTYPES["fp32"],
    np.dtype("<f2"): DTYPES["fp16"],
    np.dtype(np.bool_): DTYPE_BOOL,
}
if BFLOAT16 is not None:
    _NUMPY[BFLOAT16] = _BF16
_TORCH: dict[Any, int] = {}  # filled at the first torch tensor
ITEM_BYTES = {DTYPES["fp32"]: 4, DTYPES["fp16"]: 2, _BF16: 2, DTYPE_BOOL: 1}
_KINDS = 'float32, float16, bfloat16 (or uint16 with dtype="bf16")'


class View:
    """Where a tensor lies: strides are in elements, None = contiguous."""

    __slots__ = (
        "device_index",
        "device_type",
        "dtype",
        "keep",
        "pointer",
        "shape",
        "strides",
    )

    def __init__(
        self,
        pointer: int,
        dtype: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        keep: object,
    ) -> None:
        self.pointer = pointer
        self.dtype = dtype
        self.shape = shape
        self.strides = strides
        self.keep = keep  # owns the memory, or keeps its owner alive
        self.device_type = CPU
        self.device_index = 0

    @property
    def num_bytes(self) -> int:
        """Of the elements, each counted once."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


_address_at = ctypes.c_size_t.from_address
_DATA_OFFSET = object.__basicsize__  # where numpy's own headers read `data`


def _address_by_header(array: Array) -> int:
    return _address_at(id(array) + _DATA_OFFSET).value


def _address_by_dict(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _fastest_address() -> Callable[[Array], int]:
    """The header's, ten times faster, unless this numpy has it elsewhere.

    Only in CPython is an id an address.
    """
    if sys.implementation.name != "cpython":
        return _address_by_dict
    probe = np.zeros(1)
    known = _address_by_header(probe) == _address_by_dict(probe)
    return _address_by_header if known else _address_by_dict


address_of = _fastest_address()  # where an array's memory begins


def is_torch(tensor: Any) -> bool:
    """Whether it is a torch.Tensor; does not import torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def _can_be_read(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """A view with a negative stride, or steps in the last dimension, cannot."""
    if any(s < 0 for n, s in zip(shape, strides) if n > 1):
        return False
    return not shape or shape[-1] <= 1 or strides[-1] == 1


def _cleaned(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """Steps that are never taken say nothing: any number may stand there."""
    last = len(shape) - 1
    return tuple(
        s if n > 1 else int(d == last) for d, (n, s) in enumerate(zip(shape, strides))
    )


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Row-major without gaps; steps that are never taken do not count."""
    step = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if n > 1 and s != step:
            return False
        step *= n
    return True


def _numpy_view(field: str, array: Array, integers_hold: str | None) -> View:
    dtype = _NUMPY.get(array.dtype)
    if dtype is not None and array.flags.c_contiguous:  # most are: no more to see
        return View(address_of(array), dtype, array.shape, None, array)
    if dtype is None and array.dtype == np.uint16 and integers_hold == "bf16":
        dtype = _BF16
    if dtype is None and array.dtype.byteorder == ">":
        little = array.astype(array.dtype.newbyteorder("<"))
        return _numpy_view(field, little, integers_hold)
    if dtype is None:
        raise invalid_field(f"{field}.dtype", array.dtype, _KINDS)
    strides = None
    if not array.flags.c_contiguous:
        size = array.itemsize
        steps = tuple(s // size for s in array.strides)
        whole = all(s % size == 0 for s in array.strides)
        if whole and _can_be_read(array.shape, steps):
            strides = _cleaned(array.shape, steps)
        else:
            array = np.ascontiguousarray(array)
    pointer = address_of(array)
    return View(pointer, dtype, array.shape, strides, array)


def _torch_view(field: str, tensor: Any) -> View:
    if not _TORCH:
        torch = sys.modules["torch"]
        _TORCH[torch.float32] = DTYPES["fp32"]
        _TORCH[torch.float16] = DTYPES["fp16"]
        _TORCH[torch.bfloat16] = _BF16
        _TORCH[torch.bool] = DTYPE_BOOL
    dtype = _TORCH.get(tensor.dtype)
    if dtype is None:
        raise invalid_field(
            f"{field}.dtype", tensor.dtype, "float32, float16, bfloat16"
        )
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    shape = tuple(tensor.shape)
    strides = None
    if not tensor.is_contiguous():
        steps = tensor.stride()
        if _can_be_read(shape, steps):
            strides = _cleaned(shape, steps)
        else:
            tensor = tensor.contiguous()
    view = View(tensor.data_ptr(), dtype, shape, strides, tensor)
    if tensor.device.type != "cpu":
        view.device_type = CUDA if tensor.device.type == "cuda" else -1
        view.device_index = tensor.device.index or 0
    return view


def _dlpack_view(field: str, producer: Any) -> View:
    lent = Lent(producer)
    if lent.dtype is None:
        raise invalid_field(f"{field}.dtype", lent.dtype_name, _KINDS)
    strides = lent.strides
    if strides is not None and not _can_be_read(lent.shape, strides):
        raise invalid_field(
            f"{field}.strides", strides, ">= 0 and 1 in the last dimension"
        )
    if strides is not None:
        dense = _is_dense(lent.shape, strides)
        strides = None if dense else _cleaned(lent.shape, strides)
    view = View(lent.pointer, lent.dtype, lent.shape, strides, (lent, producer))
    view.device_type = lent.device_type
    view.device_index = lent.device_index
    return view


def view_of(field: str, tensor: Any, integers_hold: str | None = None) -> View:
    """Where a caller's tensor lies.

    Views stay views, strides and all; only ones with a negative stride, or with
    steps in the last dimension, are copied. INVALID_ARGUMENT for types that are
    not served.
    """
    if isinstance(tensor, np.ndarray):
        return _numpy_view(field, tensor, integers_hold)
    if is_torch(tensor):
        return _torch_view(field, tensor)
    if hasattr(tensor, "__dlpack__"):
        return _dlpack_view(field, tensor)
    return _numpy_view(field, np.asarray(tensor), integers_hold)


def writable_view(field: str, tensor: Any) -> View:
    """As view_of, of memory that an answer is written into."""
    if isinstance(tensor, (list, tuple)):  # numpy would make a copy of it
        raise invalid_field(field, type(tensor).__name__, "an array")
    view = view_of(field, tensor, "bf16")
    copied = is_torch(tensor) and view.keep is not tensor
    if isinstance(tensor, np.ndarray):
        copied = view.keep is not tensor or not tensor.flags.writeable
    if view.strides is not None or copied:
        raise invalid_field(field, "a view or read-only", "contiguous and writable")
    return view


def check_answer_dtype(field: str, view: View, dtype: int) -> None:
    """INVALID_ARGUMENT if the answer's bits would mean something else there."""
    if view.dtype != dtype:
        names = DTYPE_NAMES
        raise invalid_field(f"{field}.dtype", names[view.dtype], names[dtype])


def as_numpy(field: str, tensor: Any) -> Array:
    """The same memory as a numpy array; bf16 as BFLOAT16, or uint16."""
    if isinstance(tensor, np.ndarray):
        return tensor
    if not is_torch(tensor):
        return np.asarray(tensor)
    if tensor.device.type != "cpu":
        raise invalid_field(f"{field}.device", tensor.device, "cpu")
    detached = tensor.detach()
    if detached.dtype != sys.modules["torch"].bfloat16:
        array: Array = detached.numpy()
        return array
    bits: Array = detached.view(sys.modules["torch"].int16).numpy()
    return bits.view(BFLOAT16 or np.uint16)


def maker(model: Any, dtype: int, shape: tuple[int, ...]) -> Callable[[], Any]:
    """Makes new memory for an answer, of the same library as `model`."""
    if is_torch(model):
        torch = sys.modules["torch"]
        kinds = {1: torch.float32, 2: torch.float16, _BF16: torch.bfloat16}
        return functools.partial(
            torch.empty, shape, dtype=kinds[dtype], device=model.device
        )
    kinds = {1: np.float32, 2: np.float16, _BF16: BFLOAT16 or np.uint16}
    return functools.partial(np.empty, shape, np.dtype(kinds[dtype]))


def empty_like(model: Any, dtype: int, shape: tuple[int, ...]) -> Any:
    """New memory for an answer, of the same library as `model`."""
    return maker(model, dtype, shape)()


def copied_from(model: Any, address: int, dtype: int, shape: tuple[int, ...]) -> Any:
    """As empty_like, filled with what lies at `address`."""
    answer = empty_like(model, dtype, shape)
    view = view_of("out", answer, "bf16")
    ctypes.memmove(view.pointer, address, view.num_bytes)
    return answer
