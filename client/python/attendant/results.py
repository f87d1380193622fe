"""What a caller gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple


class ServedBy(NamedTuple):
    """What computed the answer: no fallback is invisible."""

    backend: str  # "cpu", "cuda"
    device_index: int
    device_uuid: str
    kernel: str
    compute_dtype: str


class StageTimes(NamedTuple):
    """Nanoseconds per stage."""

    receive_ns: int
    queue_ns: int
    upload_ns: int
    kernel_ns: int
    download_ns: int
    send_ns: int
    total_ns: int


class ResultDetails(NamedTuple):
    """What AttendResult tells beside O and LSE."""

    request_id: str
    served_by: ServedBy
    stages: StageTimes
    busy: StageTimes
    batch_requests: int
    batch_tokens: int
    workspace_bytes: int
    input_bytes: int
    output_bytes: int
    attempts: int
    door: str = "unary"


class AttendResult:
    """One answer. Its details are read when they are first asked for."""

    __slots__ = ("_details", "_read", "lse", "out")

    def __init__(self, out: Any, lse: Any, read: Callable[[], ResultDetails]) -> None:
        # Arrays of the library that q came from, or options["out"] and ["lse"]:
        self.out = out  # q's layout and lengths, v's head_dim
        # float32 [batch, heads, seqlen_q], [heads, total_q] for thd; None = not
        # asked for.
        self.lse = lse
        self._read = read
        self._details: ResultDetails | None = None

    @property
    def details(self) -> ResultDetails:
        """All of them."""
        if self._details is None:
            self._details = self._read()
            del self._read
        return self._details

    def __repr__(self) -> str:
        shape = getattr(self.out, "shape", None)
        return f"AttendResult(out of {shape}, {self.details})"

    def __reduce__(self) -> Any:
        return (_restored, (self.out, self.lse, self.details))

    @property
    def request_id(self) -> str:
        """The request's, echoed."""
        return self.details.request_id

    @property
    def served_by(self) -> ServedBy:
        """What computed the answer."""
        return self.details.served_by

    @property
    def stages(self) -> StageTimes:
        """Exposed intervals: they add up to total_ns."""
        return self.details.stages

    @property
    def busy(self) -> StageTimes:
        """Busy times, which may overlap."""
        return self.details.busy

    @property
    def batch_requests(self) -> int:
        """How many requests shared the launch."""
        return self.details.batch_requests

    @property
    def batch_tokens(self) -> int:
        """How many tokens did."""
        return self.details.batch_tokens

    @property
    def workspace_bytes(self) -> int:
        """Of this request, as planned."""
        return self.details.workspace_bytes

    @property
    def input_bytes(self) -> int:
        """Of this request's tensors."""
        return self.details.input_bytes

    @property
    def output_bytes(self) -> int:
        """Of O and LSE."""
        return self.details.output_bytes

    @property
    def attempts(self) -> int:
        """Calls that the answer took, 1 = no retry."""
        return self.details.attempts

    @property
    def door(self) -> str:
        """What carried the tensors."""
        return self.details.door


def _restored(out: Any, lse: Any, details: ResultDetails) -> AttendResult:
    return AttendResult(out, lse, lambda: details)


@dataclasses.dataclass(frozen=True)
class Device:
    """A device of the server."""

    index: int
    uuid: str
    name: str
    backend: str
    memory_bytes: int
    compute_capability: int  # 90 for Hopper, 0 for a CPU
    num_sms: int  # CPU: worker threads
    instruction_set: str


@dataclasses.dataclass(frozen=True)
class Capability:
    """One row of the table that says which kernel runs what."""

    kernel: str
    backend: str
    op: str
    min_compute_capability: int
    max_compute_capability: int
    input_dtypes: tuple[str, ...]
    output_dtypes: tuple[str, ...]
    max_head_dim: int
    boolean_mask: bool
    additive_mask: bool
    alibi: bool
    softcap: bool
    sinks: bool
    window: bool


@dataclasses.dataclass(frozen=True)
class ServerInfo:
    """What a server is, what it can do, and every bound it enforces."""

    version: str
    build: str
    uptime_ns: int
    devices: tuple[Device, ...]
    bounds: dict[str, int]  # by the names of the proto's Bounds
    capabilities: tuple[Capability, ...]
