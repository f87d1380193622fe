"""The asyncio client."""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, Any

from attendant.connection import Connection, check_timeout
from attendant.core import native_library
from attendant.cuda_tensors import with_stream
from attendant.errors import client_closed
from attendant.native_core import NativeCore
from attendant.results import AttendResult, ServerInfo
from attendant.retry import RetryPolicy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from attendant.grpcio_core import AsyncCore
    from attendant.options import AttendOptions


def _is_cancelled(task: Any) -> bool:
    """Whether somebody cancelled it: only Python 3.11 and later can tell."""
    return bool(getattr(task, "cancelling", int)())


async def _ended(call: asyncio.Future[Any]) -> None:
    """Waits for a call that will end soon, also if this is cancelled again."""
    while not call.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([call])
    if not call.cancelled():
        call.exception()  # nobody else asks for it


class _Threads:
    """A native core's calls on threads of their own, for an event loop."""

    def __init__(self, core: NativeCore, threads: int) -> None:
        self._core = core
        self._threads = futures.ThreadPoolExecutor(threads, "attendant")

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.get_running_loop().run_in_executor(None, self._core.close)

    async def attend(
        self, q: Any, k: Any, v: Any, options: AttendOptions, deadline: float
    ) -> AttendResult:
        self._core.check_open()
        cancel = self._core.new_cancel()
        options = with_stream(q, options)
        job = self._threads.submit(
            self._core.attend, q, k, v, options, deadline, cancel
        )
        call = asyncio.wrap_future(job)
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            if call.cancelled() and not _is_cancelled(asyncio.current_task()):
                raise client_closed() from None  # before a thread was free
            # The caller's memory is lent until the call has ended. `call` itself
            # can always be cancelled: that would not end what a thread does.
            cancel.request()
            if not job.cancel():
                await _ended(call)
            raise

    async def get_server_info(self, deadline: float) -> ServerInfo:
        self._core.check_open()
        return await asyncio.get_running_loop().run_in_executor(
            self._threads, self._core.get_server_info, deadline
        )


class AsyncClient:
    """As Client, for one event loop."""

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
        self._core: _Threads | AsyncCore
        if library is not None:
            native = NativeCore(library, connection, retry, door, connections)
            self._core = _Threads(native, threads)
        else:
            from attendant.grpcio_core import AsyncCore

            self._core = AsyncCore(connection, retry)

    @property
    def core(self) -> str:
        """What serves: "native" or "grpcio"."""
        return "native" if isinstance(self._core, _Threads) else "grpcio"

    async def close(self) -> None:
        """Ends the connections; calls under way are cancelled."""
        await self._core.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def attend(
        self,
        q: Any = None,
        k: Any = None,
        v: Any = None,
        *,
        timeout: float,
        **options: Unpack[AttendOptions],
    ) -> AttendResult:
        """As Client.attend; cancelling the task cancels the call."""
        deadline = time.monotonic() + check_timeout(timeout)
        return await self._core.attend(q, k, v, options, deadline)

    async def get_server_info(self, *, timeout: float) -> ServerInfo:
        """As Client.get_server_info."""
        deadline = time.monotonic() + check_timeout(timeout)
        return await self._core.get_server_info(deadline)
