"""Calls that are made often, with tensors where the door reads them."""

from __future__ import annotations

import ctypes
import sys
import time
from ctypes import c_void_p
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from attendant import native_types as types
from attendant.connection import check_timeout
from attendant.native_args import Call
from attendant.native_templates import Slots
from attendant.views import BFLOAT16, is_torch, view_of

if TYPE_CHECKING:
    from attendant.grpcio_core import BlockingCore
    from attendant.native_core import NativeCore
    from attendant.options import AttendOptions
    from attendant.results import AttendResult


class PreparedCall:
    """Client.prepare's: fill q, k, v (and mask), call attend, read out and lse.

    The arrays are the door's own memory where it has some: do not touch them
    after the client was closed. One call at a time.
    """

    q: Any = None
    k: Any = None
    v: Any = None
    qkv: Any = None
    mask: Any = None
    out: Any = None
    lse: Any = None

    def attend(self, *, timeout: float) -> AttendResult:
        """As Client.attend, over what the arrays hold now."""
        raise NotImplementedError


class PlainCall(PreparedCall):
    """Without a native library: an ordinary call of the same arrays."""

    def __init__(
        self, core: BlockingCore, q: Any, k: Any, v: Any, options: AttendOptions
    ) -> None:
        self._core = core
        self._options = options
        self.q, self.k, self.v = q, k, v
        self.qkv, self.mask = options.get("qkv"), options.get("mask")

    def attend(self, *, timeout: float) -> AttendResult:
        """As PreparedCall.attend."""
        deadline = time.monotonic() + check_timeout(timeout)
        result = self._core.attend(self.q, self.k, self.v, self._options, deadline)
        self.out, self.lse = result.out, result.lse
        return result


def _wrapped(model: Any, address: int, owner: object) -> Any:
    """An array of the same library and shape as `model`, over `owner`'s memory."""
    view = view_of("tensor", model, "bf16")
    if address == view.pointer or view.num_bytes == 0:
        return model
    memory: Any = (ctypes.c_uint8 * view.num_bytes).from_address(address)
    memory.owner = owner  # lives as long as the array and its views
    raw = np.frombuffer(memory, np.uint8)
    if is_torch(model):
        torch = sys.modules["torch"]
        return torch.from_numpy(raw).view(model.dtype).reshape(view.shape)
    dtype = model.dtype if isinstance(model, np.ndarray) else BFLOAT16
    return raw.view(dtype).reshape(view.shape)


def _dense(tensor: Any) -> Any:
    """A copy for a view, since only dense tensors keep their shape elsewhere."""
    if tensor is None:
        return None
    if is_torch(tensor):
        return tensor.detach().contiguous()
    return np.ascontiguousarray(tensor)


class NativeCall(PreparedCall):
    """A prepared call of the native core."""

    def __init__(
        self, core: NativeCore, q: Any, k: Any, v: Any, options: AttendOptions
    ) -> None:
        self._core = core
        self._handle = c_void_p()
        given: dict[str, Any] = dict(options)
        for name in ("qkv", "mask"):
            if given.get(name) is not None:
                given[name] = _dense(given[name])
        q, k, v = _dense(q), _dense(k), _dense(v)
        self._call = Call(q, k, v, cast("AttendOptions", given))
        self._handle = core.prepare(self._call.args)
        memory = types.Placed.from_address(core.library.prepared_memory(self._handle))
        lse = self._call.lse if self._call.args.return_lse else None
        models = {"q": q, "k": k, "v": v, "out": self._call.out, "lse": lse}
        models |= {"qkv": given.get("qkv"), "mask": given.get("mask")}
        packed = given.get("mask_bits", False)
        for name, model in models.items():
            if model is not None and not (name == "mask" and packed):
                setattr(self, name, _wrapped(model, getattr(memory, name), core))
        self._slots = Slots(self._call.args, self._handle)
        self._answer = (self.out, self.lse)

    def __del__(self) -> None:
        self._core.library.prepared_free(self._handle)

    def attend(self, *, timeout: float) -> AttendResult:
        """As PreparedCall.attend."""
        seconds = check_timeout(timeout)
        return self._core.attend_prepared(self._slots, seconds, *self._answer)
