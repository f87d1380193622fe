"""The client that the drop-ins ask: they have no argument for one."""

from __future__ import annotations

import os
import threading

from attendant.client import Client

_TARGET = "localhost:50051"
_TIMEOUT = 600.0  # seconds
_lock = threading.Lock()
_client: Client | None = None
_process = 0
_timeout = _TIMEOUT


def set_default_client(client: Client | None, *, timeout: float = _TIMEOUT) -> None:
    """The drop-ins' client and the seconds that each of their calls may take.

    None: as if none had been set.
    """
    global _client, _process, _timeout
    with _lock:
        _client, _process, _timeout = client, os.getpid(), timeout


def default_client() -> Client:
    """The one that was set; else one for ATTENDANT_TARGET, or localhost:50051.

    A process that was forked gets one of its own.
    """
    global _client, _process
    if _client is None or _process != os.getpid():
        with _lock:
            if _client is None or _process != os.getpid():
                target = os.environ.get("ATTENDANT_TARGET", _TARGET)
                _client = Client(target, door="auto")
                _process = os.getpid()
    return _client


def default_timeout() -> float:
    """Seconds that a drop-in's call may take."""
    return _timeout
