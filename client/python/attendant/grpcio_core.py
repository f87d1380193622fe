"""The pure Python way: grpcio and protobuf, where there is no native library."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import grpc
import grpc.aio

from attendant.connection import Connection
from attendant.errors import client_closed, invalid_field
from attendant.grpcio_errors import code_of, error_of, pushback_of, trailers_of
from attendant.options import AttendOptions
from attendant.reply import decode_response, decode_server_info
from attendant.request import encode_request
from attendant.results import AttendResult, ServerInfo
from attendant.retry import RetryPolicy
from attendant.views import (
    as_numpy,
    check_answer_dtype,
    is_torch,
    view_of,
    writable_view,
)

ATTEND = "/attendant.v1.AttentionService/Attend"
GET_SERVER_INFO = "/attendant.v1.AttentionService/GetServerInfo"


def _as_is(message: bytes) -> bytes:
    """Messages are bytes on both sides: this package's own codec made them."""
    return message


def _credentials(connection: Connection) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(
        connection.root_certificates,
        connection.client_key,
        connection.client_certificate,
    )


def _channel_options(connection: Connection) -> list[tuple[str, Any]]:
    """Messages of any size; retries are this package's own."""
    options: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", -1),
        ("grpc.max_send_message_length", -1),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        # Its name misleads: this is how long one attempt to connect may take.
        ("grpc.min_reconnect_backoff_ms", 10_000),
        ("grpc.max_reconnect_backoff_ms", 2000),
        # With any keepalive, gRPC sets TCP_USER_TIMEOUT to its time-out; pings
        # this rare are within what every server tolerates.
        ("grpc.keepalive_time_ms", 3_600_000),
        ("grpc.keepalive_timeout_ms", int(connection.stall_timeout * 1000)),
        ("grpc.http2.lookahead_bytes", 8 << 20),
        ("grpc.http2.max_frame_size", 4 << 20),
    ]
    if connection.balance or connection.is_list:
        # Servers that say they are not ready are passed over.
        config = {
            "loadBalancingConfig": [{"round_robin": {}}],
            "healthCheckConfig": {"serviceName": ""},
        }
        options.append(("grpc.service_config", json.dumps(config)))
    if connection.server_name:
        options.append(("grpc.ssl_target_name_override", connection.server_name))
    return options


def _written(field: str, answer: Any, given: Any, model: Any) -> Any:
    """The answer in the memory that was given for it, in the model's library."""
    if given is not None:
        view = writable_view(field, given)
        if view.shape != answer.shape:
            raise invalid_field(f"{field}.shape", view.shape, str(answer.shape))
        check_answer_dtype(field, view, view_of(field, answer, "bf16").dtype)
        memory = as_numpy(field, given)
        memory[...] = answer.view(memory.dtype)  # uint16 holds bf16's bits
        return given
    if not is_torch(model) or answer is None:
        return answer
    import torch

    if answer.dtype.itemsize == 4 or answer.dtype.name == "float16":
        return torch.from_numpy(answer)
    return torch.from_numpy(answer.view("int16")).view(torch.bfloat16)


def _result(
    reply: bytes, attempts: int, q: Any, options: AttendOptions
) -> AttendResult:
    result = decode_response(reply, attempts)
    model = options.get("qkv") if q is None else q
    out = _written("out", result.out, options.get("out"), model)
    lse = result.lse
    if lse is not None:
        lse = _written("lse", lse, options.get("lse"), model)
    result.out, result.lse = out, lse
    return result


def _delay(
    retry: RetryPolicy, error: Any, trailers: Any, attempts: int, deadline: float
) -> float | None:
    return retry.delay(
        code_of(error.code()),
        error.details() or "",
        pushback_of(trailers),
        attempts,
        random.random(),
        deadline - time.monotonic(),
    )


class BlockingCore:
    """Calls on their caller's thread; thread-safe."""

    def __init__(self, connection: Connection, retry: RetryPolicy) -> None:
        self._retry = retry
        self._closed = False
        self._metadata = connection.metadata()
        options = _channel_options(connection)
        target = connection.grpc_target
        self._channel = (
            grpc.secure_channel(target, _credentials(connection), options)
            if connection.tls
            else grpc.insecure_channel(target, options)
        )

    def close(self) -> None:
        """Ends the connection; calls under way are cancelled."""
        self._closed = True
        self._channel.close()

    def check_open(self) -> None:
        """Raises what a call would that begins now: of a closed client."""
        if self._closed:
            raise client_closed()

    def attend(
        self, q: Any, k: Any, v: Any, options: AttendOptions, deadline: float
    ) -> AttendResult:
        """The answer, by time.monotonic() == deadline."""
        request = encode_request(q, k, v, options)
        reply, attempts = self._call(ATTEND, request, deadline)
        return _result(reply, attempts, q, options)

    def get_server_info(self, deadline: float) -> ServerInfo:
        """What the server is."""
        return decode_server_info(self._call(GET_SERVER_INFO, b"", deadline)[0])

    def _call(self, method: str, request: bytes, deadline: float) -> tuple[bytes, int]:
        call = self._channel.unary_unary(
            method, request_serializer=_as_is, response_deserializer=_as_is
        )
        attempts = 0
        while True:
            attempts += 1
            self.check_open()
            try:
                reply = call(
                    request,
                    timeout=max(deadline - time.monotonic(), 0),
                    metadata=self._metadata,
                )
                return bytes(reply), attempts
            except grpc.RpcError as error:
                trailers = trailers_of(error.trailing_metadata())
                delay = _delay(self._retry, error, trailers, attempts, deadline)
                if delay is None:
                    raise error_of(
                        code_of(error.code()), error.details() or "", trailers
                    ) from error
            time.sleep(delay)


class AsyncCore:
    """As BlockingCore, for one event loop."""

    def __init__(self, connection: Connection, retry: RetryPolicy) -> None:
        self._retry = retry
        self._closed = False
        self._metadata = connection.metadata()
        options = _channel_options(connection)
        target = connection.grpc_target
        self._channel = (
            grpc.aio.secure_channel(target, _credentials(connection), options)
            if connection.tls
            else grpc.aio.insecure_channel(target, options)
        )

    async def close(self) -> None:
        """Ends the connection; calls under way are cancelled."""
        self._closed = True
        await self._channel.close(None)

    async def attend(
        self, q: Any, k: Any, v: Any, options: AttendOptions, deadline: float
    ) -> AttendResult:
        """The answer, by time.monotonic() == deadline."""
        request = encode_request(q, k, v, options)
        reply, attempts = await self._call(ATTEND, request, deadline)
        return _result(reply, attempts, q, options)

    async def get_server_info(self, deadline: float) -> ServerInfo:
        """What the server is."""
        reply, _ = await self._call(GET_SERVER_INFO, b"", deadline)
        return decode_server_info(reply)

    async def _call(
        self, method: str, request: bytes, deadline: float
    ) -> tuple[bytes, int]:
        call = self._channel.unary_unary(
            method, request_serializer=_as_is, response_deserializer=_as_is
        )
        attempts = 0
        while True:
            attempts += 1
            if self._closed:
                raise client_closed()
            try:
                reply = await call(
                    request,
                    timeout=max(deadline - time.monotonic(), 0),
                    metadata=self._metadata,
                )
                return bytes(reply), attempts
            except grpc.aio.AioRpcError as error:
                trailers = trailers_of(error.trailing_metadata())
                delay = _delay(self._retry, error, trailers, attempts, deadline)
                if delay is None:
                    raise error_of(
                        code_of(error.code()), error.details() or "", trailers
                    ) from error
            await asyncio.sleep(delay)
