"""The asyncio client."""

from __future__ import annotations

import asyncio
import random
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from attendant.connection import (
    ATTEND,
    GET_SERVER_INFO,
    Connection,
    as_is,
    check_timeout,
    pushback_of,
    trailers_of,
)
from attendant.errors import error_of
from attendant.reply import decode_response, decode_server_info
from attendant.request import AttendOptions, encode_request
from attendant.results import AttendResult, ServerInfo
from attendant.retry import RetryPolicy
from attendant.tensor import Array

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AsyncClient:
    """As Client, for one event loop."""

    def __init__(
        self, target: str, *, retry: RetryPolicy | None = None, **options: Any
    ) -> None:
        connection = Connection(target, **options)
        self._retry = retry or RetryPolicy()
        self._metadata = connection.metadata()
        arguments = connection.channel_options()
        self._channel = (
            grpc.aio.secure_channel(target, connection.credentials(), arguments)
            if connection.tls
            else grpc.aio.insecure_channel(target, arguments)
        )

    async def close(self) -> None:
        """Ends the connection; calls under way are cancelled."""
        await self._channel.close(None)

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
        q: Array | None = None,
        k: Array | None = None,
        v: Array | None = None,
        *,
        timeout: float,
        **options: Unpack[AttendOptions],
    ) -> AttendResult:
        """As Client.attend; cancelling the task cancels the call."""
        deadline = time.monotonic() + check_timeout(timeout)
        request = encode_request(q, k, v, options)
        reply, attempts = await self._call(ATTEND, request, deadline)
        return decode_response(reply, attempts)

    async def get_server_info(self, *, timeout: float) -> ServerInfo:
        """As Client.get_server_info."""
        deadline = time.monotonic() + check_timeout(timeout)
        reply, _ = await self._call(GET_SERVER_INFO, b"", deadline)
        return decode_server_info(reply)

    async def _call(
        self, method: str, request: bytes, deadline: float
    ) -> tuple[bytes, int]:
        call = self._channel.unary_unary(
            method, request_serializer=as_is, response_deserializer=as_is
        )
        attempts = 0
        while True:
            attempts += 1
            try:
                reply = await call(
                    request,
                    timeout=max(deadline - time.monotonic(), 0),
                    metadata=self._metadata,
                )
                return bytes(reply), attempts
            except grpc.aio.AioRpcError as error:
                code, message = error.code(), error.details() or ""
                trailers = trailers_of(error.trailing_metadata())
                delay = self._retry.delay(
                    code,
                    message,
                    pushback_of(trailers),
                    attempts,
                    random.random(),
                    deadline - time.monotonic(),
                )
                if delay is None:
                    raise error_of(code, message, trailers) from error
            await asyncio.sleep(delay)
