"""The blocking client."""

from __future__ import annotations

import time
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attendant.connection import Connection, check_timeout
from attendant.core import native_library
from attendant.cuda_tensors import (
    attend_copied,
    cannot_be_shared,
    is_cuda,
    with_stream,
)
from attendant.errors import AttendantError
from attendant.native_core import Cancel, NativeCore
from attendant.prepared import NativeCall, PlainCall, PreparedCall
from attendant.results import AttendResult, ServerInfo
from attendant.retry import RetryPolicy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attendant.grpcio_core import BlockingCore
    from attendant.options import AttendOptions


class AttendFuture(futures.Future[AttendResult]):
    """The future of Client.submit."""

    _cancel: Cancel | None = None

    def abort(self) -> None:
        """Ends the call, also one that runs: result() then raises CANCELLED.

        grpcio's calls end early only before they began.
        """
        if not self.cancel() and self._cancel is not None:
            self._cancel.request()


class Client:
    """Thread-safe. Connects at the first call and reconnects by itself.

    target is "host:port", "unix:/path" or another of gRPC's forms, or several
    addresses by commas, which take the calls in turn. core is
    "native" (libattendant_client.so), "grpcio", or "auto": the first that is
    there. door names how tensors travel: "unary", or another of the native
    library's (client/cpp/door.h); "auto" chooses for every call, and copies
    CUDA tensors that cannot be shared (attendant.cuda_tensors). One connection is
    read by one thread at a time, at both ends. Other options are those of
    attendant.connection.Connection.
    """

    def __init__(
        self,
        target: str,
        *,
        core: str = "auto",
        door: str = "unary",
        connections: int = 1,
        threads: int = 64,
        retry: RetryPolicy | None = None,
        **options: Any,
    ) -> None:
        connection = Connection(target, **options)
        retry = retry or RetryPolicy()
        library = native_library(core, door, connections)
        self._native: NativeCore | None = None
        self._core: NativeCore | BlockingCore
        if library is not None:
            self._native = NativeCore(library, connection, retry, door, connections)
            self._core = self._native
        else:
            from attendant.grpcio_core import BlockingCore

            self._core = BlockingCore(connection, retry)
        # The native core, where a call need not look at its tensors first.
        self._direct = None if door == "auto" else self._native
        self._threads = futures.ThreadPoolExecutor(threads, "attendant")
        self.door = door
        self._shares_nothing = ""  # why the server takes no CUDA tensors

    @property
    def core(self) -> str:
        """What serves: "native" or "grpcio"."""
        return "grpcio" if self._native is None else "native"

    def close(self) -> None:
        """Ends the connections; calls under way are cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._core.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def attend(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        *,
        timeout: float,
        **options: Unpack[AttendOptions],
    ) -> AttendResult:
        """Attention of q over k and v (or of options["qkv"]).

        timeout are seconds for the whole call, retries included. Raises
        AttendantError.
        """
        seconds = check_timeout(timeout)
        if self._direct is not None:
            return self._direct.attend_within(q, k, v, options, seconds)
        return self._attend(q, k, v, options, time.monotonic() + seconds)

    def _attend(
        self,
        q: Any,
        k: Any,
        v: Any,
        options: AttendOptions,
        deadline: float,
        cancel: Cancel | None = None,
    ) -> AttendResult:
        first = options.get("qkv") if q is None else q
        if self.door == "auto" and is_cuda(first):
            return self._attend_cuda(q, k, v, options, deadline, cancel)
        if self._native is None:
            return self._core.attend(q, k, v, options, deadline)
        return self._native.attend(q, k, v, options, deadline, cancel)

    def _attend_cuda(
        self,
        q: Any,
        k: Any,
        v: Any,
        options: AttendOptions,
        deadline: float,
        cancel: Cancel | None,
    ) -> AttendResult:
        def once(q: Any, k: Any, v: Any, options: AttendOptions) -> AttendResult:
            if self._native is None:
                return self._core.attend(q, k, v, options, deadline)
            return self._native.attend(q, k, v, options, deadline, cancel)

        why = "" if self._native is not None else "grpcio carries bytes"
        if not why:
            why = self._shares_nothing
        if why:
            return attend_copied(once, q, k, v, options, why)
        try:
            return once(q, k, v, options)
        except AttendantError as error:
            if not cannot_be_shared(error):
                raise
            if error.field == "door":  # for good
                self._shares_nothing = error.message
            return attend_copied(once, q, k, v, options, error.message)

    def submit(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        *,
        timeout: float,
        **options: Unpack[AttendOptions],
    ) -> AttendFuture:
        """As attend, on a thread of the client's; timeout counts from here."""
        deadline = time.monotonic() + check_timeout(timeout)
        options = with_stream(q, options)
        self._core.check_open()
        future = AttendFuture()
        if self._native is not None:
            future._cancel = self._native.new_cancel()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = self._attend(q, k, v, options, deadline, future._cancel)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self._threads.submit(run)
        return future

    def prepare(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        **options: Unpack[AttendOptions],
    ) -> PreparedCall:
        """A call to be made often, its tensors where the door reads them.

        Doors of one machine ("shm") then move nothing: fill the prepared call's
        own q, k and v instead of new arrays. Views are copied once.
        """
        if self._native is not None:
            return NativeCall(self._native, q, k, v, options)
        from attendant.grpcio_core import BlockingCore

        assert isinstance(self._core, BlockingCore)
        return PlainCall(self._core, q, k, v, options)

    def get_server_info(self, *, timeout: float) -> ServerInfo:
        """What the server is, can do and allows. Raises AttendantError."""
        return self._core.get_server_info(time.monotonic() + check_timeout(timeout))
