"""How a server is reached: what both clients share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import grpc

from attendant.errors import invalid_field

ATTEND = "/attendant.v1.AttentionService/Attend"
GET_SERVER_INFO = "/attendant.v1.AttentionService/GetServerInfo"


@dataclasses.dataclass(frozen=True)
class Connection:
    """Checked options of a client. Certificates and keys are PEM bytes."""

    target: str
    tls: bool = False
    root_certificates: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = None
    server_name: str = ""
    token: str = ""
    allow_token_without_tls: bool = False
    # Seconds. A connection whose peer takes no bytes for this long is cut off;
    # gRPC ends no call whose bytes are stuck in a socket before that.
    stall_timeout: float = 20.0

    def __post_init__(self) -> None:
        if (self.client_certificate is None) != (self.client_key is None):
            raise invalid_field(
                "client_certificate", "alone", "given together with client_key"
            )
        certificates = self.root_certificates or self.client_key or self.server_name
        if certificates and not self.tls:
            raise invalid_field("tls", False, "True to use certificates")
        private = self.tls or self.target.startswith("unix:")
        if self.token and not private and not self.allow_token_without_tls:
            raise invalid_field(
                "token", "given without TLS", "sent over TLS or a unix socket"
            )

    def credentials(self) -> grpc.ChannelCredentials:
        """Of a TLS channel."""
        return grpc.ssl_channel_credentials(
            self.root_certificates, self.client_key, self.client_certificate
        )

    def channel_options(self) -> list[tuple[str, Any]]:
        """Messages of any size; retries are this package's own."""
        options: list[tuple[str, Any]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.enable_retries", 0),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 2000),
            # With any keepalive, gRPC sets TCP_USER_TIMEOUT to its time-out; pings
            # this rare are within what every server tolerates.
            ("grpc.keepalive_time_ms", 3_600_000),
            ("grpc.keepalive_timeout_ms", int(self.stall_timeout * 1000)),
            ("grpc.http2.lookahead_bytes", 8 << 20),
            ("grpc.http2.max_frame_size", 4 << 20),
        ]
        if self.server_name:
            options.append(("grpc.ssl_target_name_override", self.server_name))
        return options

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def check_timeout(timeout: float) -> float:
    """Seconds > 0: a deadline is required."""
    if not timeout > 0:
        raise invalid_field("timeout", timeout, "> 0 seconds")
    return timeout


def as_is(message: bytes) -> bytes:
    """Messages are bytes on both sides: this package's own codec made them."""
    return message


def trailers_of(metadata: Any) -> list[tuple[str, str | bytes]]:
    """A failed call's trailers, from either kind of channel."""
    return [(key, value) for key, value in metadata or ()]


def pushback_of(trailers: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The trailer grpc-retry-pushback-ms, if the server gave one."""
    for key, value in trailers:
        if key == "grpc-retry-pushback-ms":
            return value if isinstance(value, str) else value.decode("ascii", "replace")
    return None
