"""How a server is reached: what every client shares."""

from __future__ import annotations

import dataclasses

from attendant.errors import invalid_field


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

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def check_timeout(timeout: float) -> float:
    """Seconds > 0: a deadline is required."""
    if not timeout > 0:
        raise invalid_field("timeout", timeout, "> 0 seconds")
    return timeout
