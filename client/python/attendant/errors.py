"""The one exception of this package."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from attendant.v1 import error_pb2


class AttendantError(Exception):
    """A request was refused, here or by the server.

    code is gRPC's; field, value and bound say what was wrong with which part of
    the request ("q.shape[3]", "257", "1..256") and are empty for errors of the
    transport.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        field: str = "",
        value: str = "",
        bound: str = "",
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.field = field
        self.value = value
        self.bound = bound

    def __reduce__(self) -> tuple[type[AttendantError], tuple[object, ...]]:
        parts = (self.code, self.message, self.field, self.value, self.bound)
        return (AttendantError, parts)


def invalid_field(field: str, value: object, bound: str) -> AttendantError:
    """INVALID_ARGUMENT "<field> is <value>, must be <bound>"."""
    return AttendantError(
        grpc.StatusCode.INVALID_ARGUMENT,
        f"{field} is {value}, must be {bound}",
        field,
        str(value),
        bound,
    )


def error_of(
    code: grpc.StatusCode, message: str, trailers: Iterable[tuple[str, str | bytes]]
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
