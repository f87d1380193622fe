"""The native way: libattendant_client.so, called by ctypes."""

from __future__ import annotations

import ctypes
import os
import threading
import time
import weakref
from ctypes import byref, c_void_p
from typing import Any

from attendant import native_types as types
from attendant.connection import Connection
from attendant.errors import AttendantError, StatusCode, client_closed
from attendant.native_args import Call
from attendant.native_arrays import LAYOUT
from attendant.native_library import Library, note_client
from attendant.native_result import NativeResult, decoded
from attendant.native_templates import (
    Slot,
    Slots,
    Template,
    keep,
    key_of,
    template_of,
)
from attendant.options import DTYPE_NAMES, AttendOptions
from attendant.results import AttendResult, Capability, Device, ServerInfo
from attendant.retry import RetryPolicy
from attendant.views import copied_from

_forks = 0  # between the process that loaded this and the one that runs


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Cancel:
    """Ends calls early, from any thread."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self.handle = c_void_p(library.cancel_create())

    def __del__(self) -> None:
        self.library.cancel_free(self.handle)

    def request(self) -> None:
        """Calls that were given this fail with CANCELLED."""
        self.library.cancel_request(self.handle)


def _free_client(library: Library, handle: c_void_p, forks: int) -> None:
    if forks == _forks:
        library.client_free(handle)


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
        self._forks = _forks
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
        note_client()
        self.raise_for(
            library.client_create(
                connection.target.encode(), byref(options), byref(handle)
            )
        )
        self.handle = handle
        # Once: by close(), or when nobody has this any more; not at exit, where
        # threads may still be in calls.
        self._free = weakref.finalize(self, _free_client, library, handle, _forks)
        self._free.atexit = False
        self._end = Cancel(library)
        # Calls under way, by the id of an object of each: what ends it, if it has
        # that of its own. Changed without a lock, one step at a time.
        self._running: dict[int, Cancel | None] = {}
        self._changed = threading.Condition()  # for close() to wait
        self._closed = False
        self._last: Template | None = None  # most calls are like the one before

    def close(self) -> None:
        """Cancels calls under way, waits for them and ends the connections.

        After a fork nothing: calls under way, and who holds locks, are of threads
        that this process has not.
        """
        if self._forks != _forks:
            self._closed = True
            return
        with self._changed:
            if self._closed:
                return
            self._closed = True
            for cancel in (self._end, *list(self._running.values())):
                if cancel is not None:
                    cancel.request()
            self._changed.wait_for(lambda: not self._running)
        self._free()

    def check_open(self) -> None:
        """Raises what a call would that begins now: of a closed or forked client."""
        if self._closed or self._forks != _forks:
            self._refuse()

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
        left = deadline - time.monotonic()
        return self.attend_within(q, k, v, options, left, cancel)

    def attend_within(
        self,
        q: Any,
        k: Any,
        v: Any,
        options: AttendOptions,
        seconds: float,
        cancel: Cancel | None = None,
    ) -> AttendResult:
        """The answer, within `seconds`.

        Of what Python does here most is dear: the call between has left little
        of it in the caches.
        """
        template = self._last
        if template is not None:
            slot = template.take()
            try:
                answer = template.name(slot, q, k, v, options)
                if answer is not None and self.library.place_arrays(
                    LAYOUT, slot.places.arrays, slot.places.count
                ):
                    result = self._cross(self.library.attend, slot, seconds, cancel)
                    return NativeResult(*answer, self.library, result)
            finally:
                template.give_back(slot)
        key = key_of(q, k, v, options)
        template = template_of(key)
        if template is None:
            return self._attend_first(key, q, k, v, options, seconds, cancel)
        self._last = template if template.is_alike else None
        slot = template.take()
        try:
            out, lse = template.place(slot, q, k, v, options)
            result = self._cross(self.library.attend, slot, seconds, cancel)
        finally:
            template.give_back(slot)
        return NativeResult(out, lse, self.library, result)

    def _attend_first(
        self,
        key: Any,
        q: Any,
        k: Any,
        v: Any,
        options: AttendOptions,
        seconds: float,
        cancel: Cancel | None,
    ) -> AttendResult:
        """As attend_within, of the first call with its key."""
        deadline = time.monotonic() + seconds
        call = Call(q, k, v, options)
        keep(key, call, [q, k, v], options)
        left = deadline - time.monotonic()
        result = self._cross(self.library.attend, Slot(call.args), left, cancel)
        return self._result_of(call, result)

    def prepare(self, args: types.Args) -> c_void_p:
        """The library's handle of a call to be made often; prepared_free's."""

        def ask(client: Any, what: Any, _left: Any, _cancel: Any, made: Any) -> Any:
            return self.library.prepare(client, what, made)

        return c_void_p(self._cross(ask, Slot(args), 1, None))

    def attend_prepared(
        self, slots: Slots, seconds: float, out: Any, lse: Any
    ) -> AttendResult:
        """As attend_within, of a call that the library prepared: slots'."""
        slot = slots.take()
        try:
            result = self._cross(self.library.attend_prepared, slot, seconds, None)
        finally:
            slots.give_back(slot)
        return NativeResult(out, lse, self.library, result)

    def get_server_info(self, deadline: float) -> ServerInfo:
        """What the server is."""

        def ask(client: Any, _what: Any, left: Any, _cancel: Any, info: Any) -> Any:
            return self.library.get_server_info(client, left, info)

        info = self._cross(ask, Slot(types.Args()), deadline - time.monotonic(), None)
        try:
            return _server_info(types.ServerInfo.from_address(info))
        finally:
            self.library.server_info_free(info)

    def _cross(
        self, function: Any, slot: Slot, seconds: float, cancel: Cancel | None
    ) -> int:
        """One call of the library: the address of what it gave.

        close() waits for what lies between the two changes of _running.
        """
        running = self._running
        running[id(slot)] = cancel
        try:
            # close() looks there after it said so: one of the two sees the other.
            if self._closed or self._forks != _forks:
                self._refuse()
            slot.left.value = int(seconds * 1e9) if seconds > 1e-9 else 1
            handle = (cancel or self._end).handle
            error = function(self.handle, slot.what, slot.left, handle, slot.result_at)
        finally:
            del running[id(slot)]
            if self._closed:
                with self._changed:
                    self._changed.notify_all()
        if error:
            self.raise_for(error)
        result: int = slot.result.value or 0
        return result

    def _refuse(self) -> None:
        if self._forks != _forks:
            raise AttendantError(
                StatusCode.FAILED_PRECONDITION,
                "this client was made before a fork: make one in each process",
            )
        raise client_closed()

    def raise_for(self, error: int | None) -> None:
        """Raises what the library gave, if it gave an error, and frees it."""
        if not error:
            return
        fields = types.Error.from_address(error)
        raised = AttendantError(
            StatusCode(fields.code),
            decoded(fields.message),
            decoded(fields.field),
            decoded(fields.value),
            decoded(fields.bound),
        )
        self.library.error_free(error)
        raise raised

    def _result_of(self, call: Call, result: int) -> AttendResult:
        args = call.args
        answer = NativeResult(call.out, None, self.library, result)
        if args.return_lse:
            answer.lse = call.lse
        # What was lent was empty: the answer lies in the library's memory.
        if call.out is None:
            answer.out = _copied(call, answer.reply.out)
        if call.lse is None and answer.reply.lse.dtype:
            answer.lse = _copied(call, answer.reply.lse)
        return answer


def _copied(call: Call, tensor: types.Tensor) -> Any:
    shape = tuple(tensor.shape[: tensor.rank])
    return copied_from(call.model, tensor.data, tensor.dtype, shape)


def _names(numbers: Any, count: int) -> tuple[str, ...]:
    return tuple(DTYPE_NAMES.get(numbers[i], "?") for i in range(count))


def _device(row: types.Device) -> Device:
    return Device(
        index=row.index,
        uuid=decoded(row.uuid),
        name=decoded(row.name),
        backend=decoded(row.backend),
        memory_bytes=row.memory_bytes,
        compute_capability=row.compute_capability,
        num_sms=row.num_sms,
        instruction_set=decoded(row.instruction_set),
    )


def _capability(row: types.Capability) -> Capability:
    return Capability(
        kernel=decoded(row.kernel),
        backend=decoded(row.backend),
        op=decoded(row.op),
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
        version=decoded(info.version),
        build=decoded(info.build),
        uptime_ns=info.uptime_ns,
        devices=tuple(_device(info.devices[i]) for i in range(info.num_devices)),
        bounds={decoded(bound.name): bound.value for bound in bounds},
        capabilities=tuple(
            _capability(info.capabilities[i]) for i in range(info.num_capabilities)
        ),
    )
