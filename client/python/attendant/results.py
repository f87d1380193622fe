"""What a caller gets."""

from __future__ import annotations

import dataclasses
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


class AttendResult(NamedTuple):
    """One answer."""

    # Arrays of the library that q came from, or options["out"], options["lse"].
    out: Any  # q's layout and lengths, v's head_dim
    # float32 [batch, heads, seqlen_q], [heads, total_q] for thd; None = not asked.
    lse: Any
    request_id: str
    served_by: ServedBy
    stages: StageTimes  # exposed intervals: they add up to total_ns
    busy: StageTimes  # busy times, which may overlap
    batch_requests: int
    batch_tokens: int
    workspace_bytes: int
    input_bytes: int
    output_bytes: int
    attempts: int  # calls that the answer took, 1 = no retry
    door: str = "unary"  # what carried the tensors


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
