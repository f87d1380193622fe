"""Which core serves: the native library, or grpcio."""

from __future__ import annotations

import warnings

from attendant.errors import invalid_field
from attendant.native_library import Library, usable

CORES = ("auto", "native", "grpcio")
_told = False


def native_library(core: str, door: str, connections: int) -> Library | None:
    """The library for `core`, None = grpcio.

    "auto" without the library is grpcio, which says so once a process;
    "native" without it is an error. grpcio has the door "unary" alone, on one
    connection.
    """
    if core not in CORES:
        raise invalid_field("core", core, "one of " + ", ".join(CORES))
    library, reason = (None, "") if core == "grpcio" else usable()
    if library is not None:
        return library
    if core == "native":
        raise invalid_field("core", "native", f"one that loads: {reason}")
    if door not in ("unary", "auto"):
        raise invalid_field("door", door, "unary or auto without the native library")
    if connections != 1:
        raise invalid_field("connections", connections, "1 without the native library")
    if core == "auto":
        _tell_once(reason)
    return None


def _tell_once(reason: str) -> None:
    global _told
    if not _told:
        _told = True
        warnings.warn(
            "libattendant_client.so cannot be used, grpcio serves instead, slower: "
            f"{reason}",
            RuntimeWarning,
            stacklevel=4,
        )
