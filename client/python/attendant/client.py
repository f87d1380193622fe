"""The blocking client."""

from __future__ import annotations

import time
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attendant.connection import Connection, check_timeout
from attendant.core import native_library
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

    target is "host:port", "unix:/path" or another of gRPC's forms. core is
    "native" (libattendant_client.so), "grpcio", or "auto": the first that is
    there. door names how tensors travel: "unary", or another of the native
    library's (client/cpp/door.h). One connection carries about 2 GB/s. Other
    options are those of attendant.connection.Connection.
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
        self._threads = futures.ThreadPoolExecutor(threads, "attendant")

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
        deadline = time.monotonic() + check_timeout(timeout)
        return self._core.attend(q, k, v, options, deadline)

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
        future = AttendFuture()
        if self._native is not None:
            future._cancel = self._native.new_cancel()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                if self._native is None:
                    result = self._core.attend(q, k, v, options, deadline)
                else:
                    result = self._native.attend(
                        q, k, v, options, deadline, future._cancel
                    )
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
