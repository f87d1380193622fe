"""The native way: libattendant_client.so, called by ctypes."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from ctypes import byref, c_int64, c_void_p
from typing import TYPE_CHECKING, Any

from attendant import native_types as types
from attendant.connection import Connection
from attendant.errors import AttendantError, StatusCode
from attendant.native_library import Library
from attendant.native_templates import prepare
from attendant.options import DTYPE_NAMES, AttendOptions
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
from attendant.views import copied_from

if TYPE_CHECKING:
    from attendant.native_args import Call
    from attendant.native_templates import QuickCall


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class Answered:
    """An answer of the library, which this frees."""

    __slots__ = ("_library", "_result")

    def __init__(self, library: Library, result: c_void_p) -> None:
        self._library = library
        self._result = result

    def __del__(self) -> None:
        self._library.result_free(self._result)

    @property
    def reply(self) -> types.Reply:
        """The C interface's struct, which lives as long as this."""
        return types.Reply.from_address(self._library.result_reply(self._result))

    def details(self) -> ResultDetails:
        """What it says beside O and LSE."""
        reply = self.reply
        return ResultDetails(
            _text(reply.request_id),
            ServedBy(
                _text(reply.backend),
                reply.device_index,
                _text(reply.device_uuid),
                _text(reply.kernel),
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
            _text(reply.door),
        )


class Cancel:
    """Ends calls early, from any thread."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handle: int = library.cancel_create()

    def __del__(self) -> None:
        self.library.cancel_free(self.handle)

    def request(self) -> None:
        """Calls that were given this fail with CANCELLED."""
        self.library.cancel_request(self.handle)


def _milliseconds(seconds: float) -> int:
    """0 would mean the library's own default."""
    return max(1, round(seconds * 1000))


class NativeCore:
    """Calls on their caller's thread, without the GIL; thread-safe."""

    def __init__(
        self,
        library: Library,
        connection: Connection,
        retry: RetryPolicy,
        door: str,
        connections: int,
    ) -> None:
        self.library = library
        self._process = os.getpid()
        options = types.ClientOptions(
            struct_size=ctypes.sizeof(types.ClientOptions),
            door=door.encode(),
            root_certificates=connection.root_certificates,
            client_certificate=connection.client_certificate,
            client_key=connection.client_key,
            server_name=connection.server_name.encode(),
            token=connection.token.encode(),
            tls=connection.tls,
            allow_token_without_tls=connection.allow_token_without_tls,
            connections=connections,
            max_attempts=retry.max_attempts,
            stall_timeout_ms=_milliseconds(connection.stall_timeout),
            initial_backoff_ms=_milliseconds(retry.initial_backoff),
            max_backoff_ms=_milliseconds(retry.max_backoff),
            balance=connection.balance,
        )
        handle = c_void_p()
        self.raise_for(
            library.client_create(
                connection.target.encode(), byref(options), byref(handle)
            )
        )
        self.handle = handle
        self._end = Cancel(library)
        # Calls under way, by the id of an object of each: what ends it, if it has
        # that of its own. Changed without a lock, one step at a time.
        self._running: dict[int, Cancel | None] = {}
        self._changed = threading.Condition()  # for close() to wait
        self._closed = False

    def close(self) -> None:
        """Cancels calls under way, waits for them and ends the connections."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for cancel in (self._end, *list(self._running.values())):
                if cancel is not None:
                    cancel.request()
            self._changed.wait_for(lambda: not self._running)
        if os.getpid() == self._process:
            self.library.client_free(self.handle)

    def new_cancel(self) -> Cancel:
        """For attend."""
        return Cancel(self.library)

    def attend(
        self,
        q: Any,
        k: Any,
        v: Any,
        options: AttendOptions,
        deadline: float,
        cancel: Cancel | None = None,
    ) -> AttendResult:
        """The answer, by time.monotonic() == deadline."""
        call = prepare(q, k, v, options)
        return self._answer(self.library.attend, call, call.args, deadline, cancel)

    def attend_prepared(
        self, call: Call, prepared: c_void_p, deadline: float
    ) -> AttendResult:
        """As attend, of a call that the library prepared."""
        attend = self.library.attend_prepared
        return self._answer(attend, call, prepared, deadline, None)

    def _answer(
        self,
        function: Any,
        call: Call | QuickCall,
        what: Any,
        deadline: float,
        cancel: Cancel | None,
    ) -> AttendResult:
        result = c_void_p()
        self._begin(id(result), cancel)
        try:
            left = max(int((deadline - time.monotonic()) * 1e9), 1)
            handle = (cancel or self._end).handle
            error = function(self.handle, what, left, handle, result)
        finally:
            self._end_of(id(result))
        if error:
            self.raise_for(error)
        return self._result_of(call, Answered(self.library, result))

    def get_server_info(self, deadline: float) -> ServerInfo:
        """What the server is."""
        info = c_void_p()
        self._begin(id(info), None)
        try:
            left = int((deadline - time.monotonic()) * 1e9)
            error = self.library.get_server_info(
                self.handle, c_int64(max(left, 1)), byref(info)
            )
        finally:
            self._end_of(id(info))
        self.raise_for(error)
        try:
            assert info.value is not None
            return _server_info(types.ServerInfo.from_address(info.value))
        finally:
            self.library.server_info_free(info)

    def _begin(self, call: int, cancel: Cancel | None) -> None:
        """close() waits for what lies between this and _end_of."""
        if os.getpid() != self._process:
            raise AttendantError(
                StatusCode.FAILED_PRECONDITION,
                "this client was made before a fork: make one in each process",
            )
        self._running[call] = cancel
        if self._closed:  # close() looks after it said so: one of the two sees
            self._end_of(call)
            raise AttendantError(StatusCode.CANCELLED, "the client is closed")

    def _end_of(self, call: int) -> None:
        del self._running[call]
        if self._closed:
            with self._changed:
                self._changed.notify_all()

    def raise_for(self, error: int | None) -> None:
        """Raises what the library gave, if it gave an error, and frees it."""
        if not error:
            return
        fields = types.Error.from_address(error)
        raised = AttendantError(
            StatusCode(fields.code),
            _text(fields.message),
            _text(fields.field),
            _text(fields.value),
            _text(fields.bound),
        )
        self.library.error_free(error)
        raise raised

    def _result_of(self, call: Call | QuickCall, answered: Answered) -> AttendResult:
        args = call.args
        out, lse = call.out, call.lse if args.return_lse else None
        if not args.out.data or (args.return_lse and not args.lse.data):
            reply = answered.reply
            if not args.out.data:
                out = _answer(call, reply.out, call.out)
            if reply.lse.dtype and not args.lse.data:
                lse = _answer(call, reply.lse, call.lse)
        return AttendResult(out, lse, answered.details)


def _answer(call: Call | QuickCall, tensor: types.Tensor, given: Any) -> Any:
    """An answer that lies in the library's memory: what was lent was empty."""
    if given is not None:
        return given
    shape = tuple(tensor.shape[: tensor.rank])
    return copied_from(call.model, tensor.data, tensor.dtype, shape)


def _names(numbers: Any, count: int) -> tuple[str, ...]:
    return tuple(DTYPE_NAMES.get(numbers[i], "?") for i in range(count))


def _device(row: types.Device) -> Device:
    return Device(
        index=row.index,
        uuid=_text(row.uuid),
        name=_text(row.name),
        backend=_text(row.backend),
        memory_bytes=row.memory_bytes,
        compute_capability=row.compute_capability,
        num_sms=row.num_sms,
        instruction_set=_text(row.instruction_set),
    )


def _capability(row: types.Capability) -> Capability:
    return Capability(
        kernel=_text(row.kernel),
        backend=_text(row.backend),
        op=_text(row.op),
        min_compute_capability=row.min_compute_capability,
        max_compute_capability=row.max_compute_capability,
        input_dtypes=_names(row.input_dtypes, row.num_input_dtypes),
        output_dtypes=_names(row.output_dtypes, row.num_output_dtypes),
        max_head_dim=row.max_head_dim,
        boolean_mask=bool(row.boolean_mask),
        additive_mask=bool(row.additive_mask),
        alibi=bool(row.alibi),
        softcap=bool(row.softcap),
        sinks=bool(row.sinks),
        window=bool(row.window),
    )


def _server_info(info: types.ServerInfo) -> ServerInfo:
    bounds = (info.bounds[i] for i in range(info.num_bounds))
    return ServerInfo(
        version=_text(info.version),
        build=_text(info.build),
        uptime_ns=info.uptime_ns,
        devices=tuple(_device(info.devices[i]) for i in range(info.num_devices)),
        bounds={_text(bound.name): bound.value for bound in bounds},
        capabilities=tuple(
            _capability(info.capabilities[i]) for i in range(info.num_capabilities)
        ),
    )
