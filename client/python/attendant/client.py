"""The blocking client."""

from __future__ import annotations

import random
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

import grpc

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


class Client:
    """Thread-safe. Connects at the first call and reconnects by itself.

    target is "host:port", "unix:/path" or another of gRPC's forms; options are
    those of attendant.connection.Connection.
    """

    def __init__(
        self, target: str, *, retry: RetryPolicy | None = None, **options: Any
    ) -> None:
        connection = Connection(target, **options)
        self._retry = retry or RetryPolicy()
        self._metadata = connection.metadata()
        arguments = connection.channel_options()
        self._channel = (
            grpc.secure_channel(target, connection.credentials(), arguments)
            if connection.tls
            else grpc.insecure_channel(target, arguments)
        )

    def close(self) -> None:
        """Ends the connection; calls under way are cancelled."""
        self._channel.close()

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
        q: Array | None = None,
        k: Array | None = None,
        v: Array | None = None,
        *,
        timeout: float,
        **options: Unpack[AttendOptions],
    ) -> AttendResult:
        """Attention of q over k and v (or of options["qkv"]).

        timeout are seconds for the whole call, retries included. Raises
        AttendantError.
        """
        deadline = time.monotonic() + check_timeout(timeout)
        request = encode_request(q, k, v, options)
        reply, attempts = self._call(ATTEND, request, deadline)
        return decode_response(reply, attempts)

    def get_server_info(self, *, timeout: float) -> ServerInfo:
        """What the server is, can do and allows. Raises AttendantError."""
        deadline = time.monotonic() + check_timeout(timeout)
        return decode_server_info(self._call(GET_SERVER_INFO, b"", deadline)[0])

    def _call(self, method: str, request: bytes, deadline: float) -> tuple[bytes, int]:
        call = self._channel.unary_unary(
            method, request_serializer=as_is, response_deserializer=as_is
        )
        attempts = 0
        while True:
            attempts += 1
            try:
                reply = call(
                    request,
                    timeout=max(deadline - time.monotonic(), 0),
                    metadata=self._metadata,
                )
                return bytes(reply), attempts
            except grpc.RpcError as error:
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
            time.sleep(delay)
