"""What a caller asks -> the C interface's struct."""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any

import numpy as np

from attendant import native_types as types
from attendant.cuda_tensors import (
    ALIGNMENT,
    current_stream,
    is_cuda,
    moved,
    packed_bits,
)
from attendant.errors import invalid_field
from attendant.options import (
    ALIGNMENTS,
    DTYPE_BOOL,
    DTYPE_BOOL_BITS,
    DTYPES,
    LISTS,
    AttendOptions,
    check_names,
    choose,
    dtype_number,
    integer,
    layout_number,
    numbers,
    text,
)
from attendant.views import (
    CPU,
    CUDA,
    View,
    address_of,
    as_numpy,
    check_answer_dtype,
    empty_like,
    is_torch,
    view_of,
    writable_view,
)

_PRESENT = {
    "softmax_scale": types.HAS_SOFTMAX_SCALE,
    "softcap": types.HAS_SOFTCAP,
    "window_left": types.HAS_WINDOW_LEFT,
    "window_right": types.HAS_WINDOW_RIGHT,
}
_INTEGERS = {"num_q_heads", "num_kv_heads", "causal", "return_lse", "priority"}
_TEXTS = {"request_id", "ordering_key"}
_ELSEWHERE = {
    "layout",
    "dtype",
    "qkv",
    "mask",
    "mask_bits",
    "out",
    "lse",
    "cuda_stream",
}
_FIELDS: dict[str, Any] = {entry[0]: entry[1] for entry in types.Args._fields_}
_BITS = {
    name: 8 * ctypes.sizeof(kind)
    for name, kind in _FIELDS.items()
    if kind in (ctypes.c_int32, ctypes.c_int64)
}


@functools.lru_cache(maxsize=1024)
def _numbers(values: tuple[int, ...]) -> Any:
    """For C to read; shared, so never written."""
    return (ctypes.c_int64 * len(values))(*values)


class Call:
    """The struct of one call, and everything that must live as long."""

    def __init__(self, q: Any, k: Any, v: Any, options: AttendOptions) -> None:
        self.args = types.Args()
        self.args.struct_size = ctypes.sizeof(types.Args)
        self._keep: list[object] = []
        layout = options.get("layout") or "bshd"
        self.args.layout = layout_number(options)
        self._dtype = options.get("dtype")
        views = {
            name: self._add(name, tensor)
            for name, tensor in (("q", q), ("k", k), ("v", v))
            if tensor is not None
        }
        if options.get("qkv") is not None:
            views["qkv"] = self._add("qkv", options["qkv"])
        if options.get("mask") is not None:
            self._add_mask(options["mask"], options.get("mask_bits", False))
        self._set_options(options)
        self.model = options.get("qkv") if q is None else q
        self.out: Any = options.get("out")
        self.lse: Any = options.get("lse")
        self._lend_answer(views, layout, options)
        if any(view.device_type == CUDA for view in views.values()):
            self._set_stream(options.get("cuda_stream"))

    def _set_stream(self, stream: int | None) -> None:
        """Without torch: DLPack's producers have seen to the default stream."""
        if stream is None:
            stream = current_stream(self.model) if is_cuda(self.model) else 0
        self.args.cuda_stream = stream
        self.args.present |= types.HAS_CUDA_STREAM

    def _add(self, name: str, tensor: Any) -> View:
        view = self._view(name, tensor)
        self._place(name, view)
        return view

    def _view(self, name: str, tensor: Any) -> View:
        """On a GPU it begins where a region may: else it is copied there."""
        view = view_of(name, tensor, self._dtype)
        on_gpu = view.device_type == CUDA and is_torch(view.keep)
        if on_gpu and view.pointer % ALIGNMENT != 0:
            view = view_of(name, moved(view.keep), self._dtype)
        return view

    def _place(self, name: str, view: View) -> None:
        slot = getattr(self.args, name)
        rank = len(view.shape)
        if rank > 8:
            raise invalid_field(f"{name}.shape", view.shape, "at most 8 dimensions")
        slot.data = view.pointer
        slot.shape = _numbers(view.shape)
        if view.strides is not None:
            slot.strides = _numbers(view.strides)
        slot.rank = rank
        slot.dtype = view.dtype
        slot.device_type = view.device_type
        slot.device_index = view.device_index
        self._keep.append(view.keep)

    def _add_mask(self, mask: Any, bits: bool) -> None:
        view = self._view("mask", mask)
        if bits and view.dtype != DTYPE_BOOL:
            raise invalid_field("mask_bits", True, "False with a mask of floats")
        if bits and is_cuda(mask):
            packed = packed_bits(mask)
            view = view_of("mask", packed.view(sys.modules["torch"].bool))
            view.shape = (*view.shape[:-1], mask.shape[-1])
            view.dtype = DTYPE_BOOL_BITS
        elif bits:
            packed = np.packbits(as_numpy("mask", mask), axis=-1, bitorder="little")
            shape = view.shape
            view = view_of("mask", packed.view(np.bool_))
            view.shape = shape
            view.dtype = DTYPE_BOOL_BITS
        self._place("mask", view)

    def _set_options(self, options: AttendOptions) -> None:
        given: dict[str, Any] = dict(options)
        for name, value in given.items():
            if value is None or name in _ELSEWHERE:
                continue
            if name in _INTEGERS:
                self._set(name, integer(name, value))
            elif name in _PRESENT:
                self._set(name, value)
                self.args.present |= _PRESENT[name]
            elif name in LISTS:
                self._add_list(name, value)
            elif name in _TEXTS:
                setattr(self.args, name, text(name, value))
            elif name == "alignment":
                self.args.alignment = choose(name, ALIGNMENTS, value)
            elif name == "dropout_p":
                self._set(name, value)
            elif name in ("compute_dtype", "output_dtype"):
                setattr(self.args, name, dtype_number(name, value))
            else:
                check_names(options)

    def _set(self, name: str, value: Any) -> None:
        """ctypes would cut an integer that is too large without a word."""
        bits = _BITS.get(name)
        if bits is not None and not -(1 << bits - 1) <= value < 1 << bits - 1:
            raise invalid_field(name, value, f"a number of {bits} bits")
        try:
            setattr(self.args, name, value)
        except (TypeError, ValueError) as error:
            raise invalid_field(name, value, str(error)) from error

    def _add_list(self, name: str, values: Any) -> None:
        if is_cuda(values):
            values = values.cpu()
        array = np.ascontiguousarray(numbers(name, values))
        setattr(self.args, name, address_of(array))
        setattr(self.args, f"num_{name}", array.size)
        self._keep.append(array)

    def _lend_answer(
        self, views: dict[str, View], layout: str, options: AttendOptions
    ) -> None:
        """Memory for the answer, where what was asked says how much."""
        shapes = _answer_shapes(views, layout, self.args.num_q_heads)
        dtypes = {"lse": DTYPES["fp32"]}
        if shapes is not None:
            first = views["qkv"] if "qkv" in views else views["q"]
            dtypes["out"] = dtype = self.args.output_dtype or first.dtype
            if self.out is None and dtype in DTYPES.values():
                self.out = empty_like(self.model, dtype, shapes[0])
        if shapes is not None and self.args.return_lse and self.lse is None:
            self.lse = empty_like(self.model, DTYPES["fp32"], shapes[1])
        model = views.get("qkv") or views.get("q")
        on_gpu = model is not None and model.device_type == CUDA
        for name in ("out", "lse"):
            tensor = getattr(self, name)
            if tensor is None or (name == "lse" and not self.args.return_lse):
                continue
            view = writable_view(name, tensor)
            if view.device_type != CPU and not (on_gpu and view.device_type == CUDA):
                device = getattr(tensor, "device", view.device_type)
                raise invalid_field(f"{name}.device", device, "cpu, as q's")
            if shapes is not None and view.shape != shapes[name == "lse"]:
                raise invalid_field(
                    f"{name}.shape", view.shape, str(shapes[name == "lse"])
                )
            if name in dtypes:
                check_answer_dtype(name, view, dtypes[name])
            buffer = getattr(self.args, name)
            buffer.data = view.pointer
            buffer.num_bytes = view.num_bytes
            self._keep.append(view.keep)


def _answer_shapes(
    views: dict[str, View], layout: str, num_q_heads: int
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of O and LSE; None for requests that no server answers."""
    rank = 3 if layout == "thd" else 4
    if "qkv" in views:
        shape = views["qkv"].shape
        if len(shape) == rank + 1:
            shape = (*shape[: rank - 2], *shape[rank - 1 :])
        elif len(shape) == rank:
            shape = (*shape[: rank - 2], num_q_heads, shape[-1])
    elif "q" in views and "v" in views:
        shape, v = views["q"].shape, views["v"].shape
        if len(v) != rank:
            return None
        shape = (*shape[:-1], v[-1])
    else:
        return None
    if len(shape) != rank:
        return None
    if layout == "thd":
        return shape, (shape[1], shape[0])
    if layout == "bhsd":
        return shape, shape[:-1]
    return shape, (shape[0], shape[2], shape[1])
