"""How a server is reached: what every client shares."""

from __future__ import annotations

import dataclasses
import ipaddress

from attendant.errors import invalid_field
from attendant.options import text

# With these gRPC reads the target by itself.
SCHEMES = ("ipv4", "ipv6", "dns", "unix", "unix-abstract", "vsock", "xds")


def _family(server: str) -> str:
    """Of ADDRESS:PORT: "ipv4", "ipv6" (in brackets), or ""."""
    host, colon, port = server.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        version = ipaddress.ip_address(host[1:-1] if bracketed else host).version
    except ValueError:
        return ""
    known = colon and port and bracketed == (version == 6)
    return f"ipv{version}" if known else ""


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
    # Calls go in turn to all servers that the target's name stands for and that
    # say they are ready. A target of several addresses by commas means it too.
    balance: bool = False
    # Seconds. A connection whose peer takes no bytes for this long is cut off;
    # gRPC ends no call whose bytes are stuck in a socket before that.
    stall_timeout: float = 20.0

    def __post_init__(self) -> None:
        for field in ("target", "server_name", "token"):
            text(field, getattr(self, field), shown=field != "token")
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

    @property
    def is_list(self) -> bool:
        """Whether the target names several servers by commas."""
        scheme = self.target.split(":", 1)[0]
        return "," in self.target and scheme not in SCHEMES

    @property
    def grpc_target(self) -> str:
        """What gRPC is to be told: a list by its scheme."""
        if not self.is_list:
            return self.target
        servers = [
            "127.0.0.1:" + server.removeprefix("localhost:")
            if server.startswith("localhost:")
            else server
            for server in self.target.split(",")
        ]
        family = _family(servers[0])
        for server in servers:
            if not family or _family(server) != family:
                raise invalid_field(
                    "target",
                    server,
                    "ADDRESS:PORT, all of a list IPv4 or all IPv6; servers behind "
                    "one name: dns:///NAME:PORT, with balance",
                )
        return family + ":" + ",".join(servers)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Sent with every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def check_timeout(timeout: float) -> float:
    """Seconds > 0: a deadline is required. A day at most, as in C++.

    A float of Python's own: numpy's smaller ones would round the clock's time.
    """
    try:
        if 0 < timeout <= 86_400:
            return float(timeout)
        if timeout > 0:
            return 86_400.0
    except (TypeError, ValueError):  # no number, or several
        pass
    raise invalid_field("timeout", timeout, "> 0 seconds")
