"""Finds and loads libattendant_client.so."""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_void_p

from attendant import native_types as types

_NAME = "libattendant_client.so.0"
_FUNCTIONS: dict[str, tuple[object, list[object] | None]] = {
    "version": (c_char_p, []),
    "error_free": (None, [c_void_p]),
    "client_create": (
        c_void_p,
        [c_char_p, POINTER(types.ClientOptions), POINTER(c_void_p)],
    ),
    "client_free": (None, [c_void_p]),
    "cancel_create": (c_void_p, []),
    "cancel_request": (None, [c_void_p]),
    "cancel_free": (None, [c_void_p]),
    # None: what is given are objects of ctypes, which it need not convert.
    "attend": (c_void_p, None),
    "place_arrays": (c_int32, None),
    "prepare": (c_void_p, [c_void_p, POINTER(types.Args), POINTER(c_void_p)]),
    "prepared_memory": (c_void_p, [c_void_p]),
    "prepared_free": (None, [c_void_p]),
    "attend_prepared": (c_void_p, None),
    "result_reply": (c_void_p, [c_void_p]),
    "result_free": (None, [c_void_p]),
    "get_server_info": (c_void_p, [c_void_p, c_int64, POINTER(c_void_p)]),
    "server_info_free": (None, [c_void_p]),
}


class Library:
    """The functions of the C interface; each releases the GIL while it runs.

    The short ones that neither block nor call back keep it: giving it up costs
    more than they take.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        released = ctypes.CDLL(path)
        held = ctypes.PyDLL(path)
        quick = (
            "error_free",
            "result_free",
            "result_reply",
            "cancel_create",
            "cancel_free",
            "place_arrays",
        )
        # First, since another ABI may lack a function.
        abi_version = released.attendant_abi_version
        abi_version.restype = c_int32
        found = abi_version()
        if found != types.ABI_VERSION:
            raise OSError(f"{path} has ABI {found}, not {types.ABI_VERSION}")
        for name, (result, arguments) in _FUNCTIONS.items():
            loaded = held if name in quick else released
            function = getattr(loaded, f"attendant_{name}")
            function.restype = result
            if arguments is not None:
                function.argtypes = arguments
            setattr(self, name, function)
        self.dropped: list[int] = []  # records that nobody needs any more

    def free_dropped(self) -> None:
        """Frees the answers' records in `dropped`. Thread-safe."""
        try:
            while True:  # each step is one thread's alone
                self.result_free(self.dropped.pop())
        except IndexError:
            return

    def __getattr__(self, name: str) -> ctypes._NamedFuncPointer:
        raise AttributeError(name)  # for type checkers: functions are set above


_made_clients = False  # here, or in a process that this was forked from
_is_cut_off = False


def note_client() -> None:
    """A client is about to be made."""
    global _made_clients
    _made_clients = True


def _note_fork() -> None:
    global _is_cut_off
    _is_cut_off = _made_clients


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def usable() -> tuple[Library | None, str]:
    """As load(); None too in a child of a process that had made clients.

    gRPC's state is there and its threads are not: calls would never end. What
    is closed takes gRPC a while, so that closed clients count too.
    """
    if _is_cut_off:
        return None, "this process was forked after native clients were made"
    return load()


def candidates() -> list[str]:
    """Where the library is looked for, best first.

    ATTENDANT_CLIENT_LIBRARY alone if it is set; else beside this file, where a
    wheel has it, and where the system's loader looks.
    """
    named = os.environ.get("ATTENDANT_CLIENT_LIBRARY")
    if named is not None:
        return [named]
    return [str(pathlib.Path(__file__).parent / _NAME), _NAME]


@functools.lru_cache(maxsize=1)
def load() -> tuple[Library | None, str]:
    """The library, or None and why not. Looks once a process."""
    reasons = []
    for path in candidates():
        try:
            return Library(path), ""
        except (OSError, AttributeError) as error:
            reasons.append(str(error))
    return None, "; ".join(reasons)
