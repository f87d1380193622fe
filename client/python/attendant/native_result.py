"""An answer of the native core."""

from __future__ import annotations

from typing import Any

from attendant import native_types as types
from attendant.native_library import Library
from attendant.options import DTYPE_NAMES
from attendant.results import AttendResult, ResultDetails, ServedBy, StageTimes

_MOST_DROPPED = 32  # records of 1 KB that wait: many take not much longer than one


def decoded(value: bytes) -> str:
    """A text of the library."""
    return value.decode("utf-8", "replace")


class NativeResult(AttendResult):
    """An answer whose details the library holds; freed with this."""

    __slots__ = ("_library", "_result")

    def __init__(self, out: Any, lse: Any, library: Library, result: int) -> None:
        self._result = result
        self._library = library
        self.out = out
        self.lse = lse
        self._details = None

    def __del__(self) -> None:
        try:
            dropped = self._library.dropped
        except AttributeError:  # Ctrl-C came before __init__
            return
        dropped.append(self._result)
        if len(dropped) >= _MOST_DROPPED:
            self._library.free_dropped()

    @property
    def reply(self) -> types.Reply:
        """The C interface's struct, which lives as long as this."""
        return types.Reply.from_address(self._library.result_reply(self._result))

    @property
    def details(self) -> ResultDetails:
        """As AttendResult's."""
        if self._details is None:
            self._details = self._read_details()
        return self._details

    def _read_details(self) -> ResultDetails:
        reply = self.reply
        return ResultDetails(
            decoded(reply.request_id),
            ServedBy(
                decoded(reply.backend),
                reply.device_index,
                decoded(reply.device_uuid),
                decoded(reply.kernel),
                DTYPE_NAMES.get(reply.compute_dtype, "?"),
            ),
            StageTimes(*reply.exposed),
            StageTimes(*reply.busy),
            reply.batch_requests,
            reply.batch_tokens,
            reply.workspace_bytes,
            reply.input_bytes,
            reply.output_bytes,
            reply.attempts,
            decoded(reply.door),
        )
