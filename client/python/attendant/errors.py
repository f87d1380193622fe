"""The one exception of this package, and its codes."""

from __future__ import annotations

import enum


class StatusCode(enum.Enum):
    """gRPC's codes, by gRPC's names; the values are the numbers on the wire."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class AttendantError(Exception):
    """A request was refused, here or by the server.

    code is gRPC's; field, value and bound say what was wrong with which part of
    the request ("q.shape[3]", "257", "1..256") and are empty for errors of the
    transport.
    """

    def __init__(
        self,
        code: StatusCode,
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


def client_closed() -> AttendantError:
    """What calls of a closed client fail with."""
    return AttendantError(StatusCode.CANCELLED, "the client is closed")


def invalid_field(field: str, value: object, bound: str) -> AttendantError:
    """INVALID_ARGUMENT "<field> is <value>, must be <bound>"."""
    return AttendantError(
        StatusCode.INVALID_ARGUMENT,
        f"{field} is {value}, must be {bound}",
        field,
        str(value),
        bound,
    )
