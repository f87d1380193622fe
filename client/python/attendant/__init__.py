"""Client of Attendant: exact attention over gRPC.

import attendant

with attendant.Client("localhost:50051") as client:
    result = client.attend(q, k, v, causal=True, timeout=10)
    print(result.out.shape, result.served_by.kernel)
"""

from typing import Any

from attendant.aio import AsyncClient
from attendant.client import AttendFuture, Client
from attendant.default import default_client, set_default_client
from attendant.errors import AttendantError, StatusCode
from attendant.merge import apply_sinks, merge_partials
from attendant.options import AttendOptions
from attendant.prepared import PreparedCall
from attendant.results import (
    AttendResult,
    Capability,
    Device,
    ResultDetails,
    ServedBy,
    ServerInfo,
    StageTimes,
)
from attendant.retry import RetryPolicy

__all__ = [
    "AsyncClient",
    "AttendFuture",
    "AttendOptions",
    "AttendResult",
    "AttendantError",
    "Capability",
    "Client",
    "Device",
    "PreparedCall",
    "ResultDetails",
    "RetryPolicy",
    "ServedBy",
    "ServerInfo",
    "StageTimes",
    "StatusCode",
    "apply_sinks",
    "default_client",
    "merge_partials",
    "scaled_dot_product_attention",
    "set_default_client",
]


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for."""
    if name == "scaled_dot_product_attention":
        from attendant.sdpa import scaled_dot_product_attention

        return scaled_dot_product_attention
    raise AttributeError(f"module 'attendant' has no attribute {name!r}")
