"""What a failed grpcio call says -> AttendantError."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import grpc

from attendant.errors import AttendantError, StatusCode
from attendant.v1 import error_pb2


def code_of(code: grpc.StatusCode) -> StatusCode:
    """grpcio's code as this package's."""
    return StatusCode[code.name]


def trailers_of(metadata: Any) -> list[tuple[str, str | bytes]]:
    """A failed call's trailers, from either kind of channel."""
    return [(key, value) for key, value in metadata or ()]


def pushback_of(trailers: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The trailer grpc-retry-pushback-ms, if the server gave one."""
    for key, value in trailers:
        if key == "grpc-retry-pushback-ms":
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None


def error_of(
    code: StatusCode, message: str, trailers: Iterable[tuple[str, str | bytes]]
) -> AttendantError:
    """The server's error, with its detail if the trailers carry one."""
    for key, value in trailers:
        if key != "grpc-status-details-bin" or not isinstance(value, bytes):
            continue
        status = error_pb2.RpcStatus()
        try:
            status.ParseFromString(value)
            for packed in status.details:
                detail = error_pb2.ErrorDetail()
                if packed.Unpack(detail):
                    return AttendantError(
                        code, message, detail.field, detail.value, detail.bound
                    )
        except ValueError:  # protobuf's DecodeError: an error without a detail
            break
    return AttendantError(code, message)
