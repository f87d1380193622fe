"""CUDA tensors of torch: where they lie, or copied to the host, aloud.

Door "ipc" (and "auto", which takes it for them) leaves them in GPU memory. A
call waits for the stream that is current on its thread, or for the one that the
option cuda_stream names. Door "auto", and the drop-ins by every door, copy
what cannot be shared to the host and the answer back, and say so once: memory
that cannot be exported (expandable segments, cudaMallocAsync), a server on
another machine or another GPU, or one that shares no GPU memory.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from attendant.errors import AttendantError, StatusCode
from attendant.results import AttendResult
from attendant.views import is_torch

if TYPE_CHECKING:
    from attendant.options import AttendOptions

SHARING_DOORS = ("ipc", "auto")
ALIGNMENT = 256  # bytes, of a tensor in its allocation
_told: set[str] = set()


def is_cuda(tensor: Any) -> bool:
    """Whether it is a torch tensor in GPU memory."""
    return is_torch(tensor) and bool(tensor.is_cuda)


def current_stream(tensor: Any) -> int:
    """The address of the stream that is current for the tensor's device."""
    cuda: Any = sys.modules["torch"].cuda
    stream: int = cuda.current_stream(tensor.device).cuda_stream
    return stream


def moved(tensor: Any) -> Any:
    """A copy on the same GPU, at a place of its own."""
    return tensor.clone(memory_format=sys.modules["torch"].contiguous_format)


def packed_bits(mask: Any) -> Any:
    """A boolean mask, eight entries a byte, made on its GPU.

    Dimensions that repeat become 1, which says the same of a mask.
    """
    torch: Any = sys.modules["torch"]
    for d in range(mask.dim() - 1):
        if mask.stride(d) == 0 and mask.shape[d] > 1:
            mask = mask.narrow(d, 0, 1)
    padded = torch.nn.functional.pad(mask, (0, -mask.shape[-1] % 8))
    weights = 2 ** torch.arange(8, dtype=torch.uint8, device=mask.device)
    bits = padded.unflatten(-1, (-1, 8)).to(torch.uint8) * weights
    return bits.sum(-1, dtype=torch.uint8)


def with_stream(q: Any, options: AttendOptions) -> AttendOptions:
    """For a call on another thread: the stream that is current on this one."""
    first = options.get("qkv") if q is None else q
    if not is_cuda(first) or options.get("cuda_stream") is not None:
        return options
    given: dict[str, Any] = {**options, "cuda_stream": current_stream(first)}
    return cast("AttendOptions", given)


def cannot_be_shared(error: AttendantError) -> bool:
    """Whether a call failed because its tensors are where they are."""
    if error.code == StatusCode.FAILED_PRECONDITION:
        return error.field.endswith(".data")
    if error.code == StatusCode.UNIMPLEMENTED:
        return error.field == "door"
    return error.field == "device_uuid"


Attend = Callable[[Any, Any, Any, "AttendOptions"], AttendResult]


def attend_copied(
    attend: Attend, q: Any, k: Any, v: Any, options: AttendOptions, why: str
) -> AttendResult:
    """By host memory; the answer comes to q's device, or to out and lse."""
    _tell_once(why)
    first = options.get("qkv") if q is None else q
    given: dict[str, Any] = {
        name: _on_host(value)
        for name, value in options.items()
        if name not in ("out", "lse", "cuda_stream")
    }
    result = attend(_on_host(q), _on_host(k), _on_host(v), cast("AttendOptions", given))
    out = _returned(result.out, options.get("out"), first)
    lse = _returned(result.lse, options.get("lse"), first)
    return AttendResult(out, lse, lambda: result.details)


def _on_host(value: Any) -> Any:
    return value.cpu() if is_cuda(value) else value


def _returned(answer: Any, place: Any, first: Any) -> Any:
    if place is None:
        return None if answer is None else answer.to(first.device)
    return place.copy_(answer)


def _tell_once(why: str) -> None:
    kind = why.split(":")[0].split(" lies in ")[-1]
    if kind not in _told:
        _told.add(kind)
        warnings.warn(
            f"CUDA tensors are copied to the host and the answer back: {why}",
            RuntimeWarning,
            stacklevel=5,
        )
