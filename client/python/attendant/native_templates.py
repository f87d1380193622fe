"""The quick way to a call's struct, for calls like one before.

Most programs ask for the same shapes and options again and again: then only
addresses differ, and the rest of the struct is copied from the first such call.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from attendant import native_types as types
from attendant.cuda_tensors import ALIGNMENT, current_stream, is_cuda
from attendant.native_args import Call
from attendant.options import DTYPES, AttendOptions
from attendant.views import address_of, empty_like, is_torch

# Options that a template may hold: numbers and names, all hashable.
_SCALARS = {
    "layout",
    "dtype",
    "compute_dtype",
    "output_dtype",
    "softmax_scale",
    "softcap",
    "causal",
    "alignment",
    "window_left",
    "window_right",
    "return_lse",
    "dropout_p",
    "priority",
    "mask_bits",
}
_WORDS = ctypes.c_uint64 * (ctypes.sizeof(types.Args) // 8)
_Q, _K, _V, _OUT, _LSE, _STREAM = (
    getattr(types.Args, name).offset // 8
    for name in ("q", "k", "v", "out", "lse", "cuda_stream")
)
_MOST = 1024
_templates: dict[Any, Template] = {}


class Template:
    """A struct whose addresses are still to be set, and its answer's shapes."""

    def __init__(self, call: Call) -> None:
        self._args = call.args
        self._free: list[tuple[types.Args, Any]] = []
        self.out_shape = tuple(call.out.shape)
        self.out_dtype = call.args.output_dtype or call.args.q.dtype
        self.lse_shape = None if call.lse is None else tuple(call.lse.shape)

    def take(self) -> tuple[types.Args, Any]:
        """A struct for one call, and the words of its memory."""
        try:
            return self._free.pop()
        except IndexError:
            args = types.Args.from_buffer_copy(self._args)
            return args, _WORDS.from_buffer(args)

    def give_back(self, taken: tuple[types.Args, Any]) -> None:
        """For another call."""
        self._free.append(taken)


class QuickCall:
    """As Call. Who asks keeps the tensors alive."""

    __slots__ = ("_taken", "_template", "args", "lse", "model", "out")

    def __init__(self, template: Template, model: Any) -> None:
        self._template = template
        self._taken = template.take()
        self.args = self._taken[0]
        self.model = model
        self.out: Any = None
        self.lse: Any = None

    def __del__(self) -> None:
        self._template.give_back(self._taken)

    def place(self, q: Any, k: Any, v: Any, out: Any, lse: Any) -> None:
        """Sets every address; None of the answer = new memory."""
        template, words = self._template, self._taken[1]
        words[_Q] = _address(q)
        words[_K] = _address(k)
        words[_V] = _address(v)
        if out is None:
            out = empty_like(q, template.out_dtype, template.out_shape)
        words[_OUT] = _address(out)
        self.out = out
        if template.lse_shape is not None and self.args.return_lse:
            if lse is None:
                lse = empty_like(q, DTYPES["fp32"], template.lse_shape)
            words[_LSE] = _address(lse)
        self.lse = lse
        if self.args.present & types.HAS_CUDA_STREAM:
            words[_STREAM] = current_stream(q)


def _kind_of(tensor: Any) -> Any:
    """What two tensors have in common but their address; None = look closer."""
    if type(tensor) is np.ndarray:
        if not tensor.flags.c_contiguous:
            return None
        return (tensor.shape, tensor.dtype)
    if is_torch(tensor) and tensor.is_contiguous() and not tensor.is_neg():
        if tensor.is_cpu:
            return (tensor.shape, tensor.dtype)
        if is_cuda(tensor) and tensor.data_ptr() % ALIGNMENT == 0:
            return (tensor.shape, tensor.dtype, tensor.device)
    return None


def _address(tensor: Any) -> int:
    if type(tensor) is np.ndarray:
        return address_of(tensor)
    address: int = tensor.data_ptr()
    return address


def _key(q: Any, k: Any, v: Any, options: AttendOptions) -> Any:
    """Calls with one key differ in addresses alone; None = in more."""
    kinds = [_kind_of(q), _kind_of(k), _kind_of(v)]
    for name in ("out", "lse"):
        answer = options.get(name)
        if answer is not None:
            writable = type(answer) is not np.ndarray or answer.flags.writeable
            kinds.append(_kind_of(answer) if writable else None)
    if None in kinds:
        return None
    for name, value in options.items():
        if name == "out" or name == "lse" or value is None:
            continue
        if name not in _SCALARS:
            return None
        kinds.append((name, type(value), value))
    kinds.append(("out" in options, "lse" in options))
    return tuple(kinds)


def prepare(q: Any, k: Any, v: Any, options: AttendOptions) -> Call | QuickCall:
    """The struct for a call. Errors as Call."""
    key = _key(q, k, v, options)
    try:
        template = None if key is None else _templates.get(key)
    except TypeError:  # an option that is no number or name
        key = template = None
    if template is None:
        call = Call(q, k, v, options)
        if key is not None and call.args.out.data:
            if len(_templates) >= _MOST:
                _templates.clear()
            _templates[key] = Template(call)
        return call
    quick = QuickCall(template, q)
    quick.place(q, k, v, options.get("out"), options.get("lse"))
    return quick
