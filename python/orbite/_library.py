# SPDX-License-Identifier: Apache-2.0
"""Finds liborbite_nixl.so, the very one that this process uses already, and calls it."""

from __future__ import annotations

import ctypes
import os
import threading
from ctypes import POINTER, byref, c_char, c_int32, c_uint16, c_uint32, c_uint64
from pathlib import Path

ABI_MAJOR = 0
ABI_MINOR = 3
SONAME = f"liborbite_nixl.so.{ABI_MAJOR}"
PLUGIN = "libplugin_ORBITE.so"
MESSAGE_BYTES = 400

ERR_ACTIVE = 304
ERR_FORKED = 701


class OrbiteError(Exception):
    """What the library refused. `status` is the number of orbite/error_codes.def, 0 without one;
    `native_errno` is that of the system call at fault, or 0."""

    def __init__(self, message: str, status: int = 0, native_errno: int = 0):
        super().__init__(message)
        self.status = status
        self.native_errno = native_errno


class _Record(ctypes.Structure):
    _fields_ = [("size", c_uint32), ("abi_major", c_uint16), ("abi_minor", c_uint16)]


class _Error(ctypes.Structure):
    _fields_ = [
        ("record", _Record),
        ("status", c_int32),
        ("native_errno", c_int32),
        ("message", c_char * MESSAGE_BYTES),
    ]


class _Abi(ctypes.Structure):
    _fields_ = [
        ("record", _Record),
        ("abi_major", c_uint16),
        ("abi_minor", c_uint16),
        ("wire_version", c_uint32),
        ("features", c_uint64),
        ("version", c_char * 32),
    ]


def _made(kind: type[ctypes.Structure]) -> ctypes.Structure:
    return kind(record=_Record(ctypes.sizeof(kind), ABI_MAJOR, ABI_MINOR))


def _loaded() -> list[Path]:
    """The copies of the library that are mapped into this process."""
    found: dict[Path, None] = {}
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and Path(fields[5]).name.startswith("liborbite_nixl.so"):
            found[Path(fields[5])] = None
    return list(found)


def _directories() -> list[Path]:
    """Where the library and the plugin may be, the likeliest first."""
    package = Path(__file__).resolve().parent
    named = os.environ.get("NIXL_PLUGIN_DIR", "")
    found = [Path(named)] if named else []
    found.append(package)
    found.append(package.parents[1] / "build" / "nixl-plugins")  # of a source tree
    if len(package.parents) > 3:
        # Installed: PREFIX/share/orbite/python/orbite.
        found += sorted((package.parents[3] / "lib").glob("*-linux-gnu"))
        found += [package.parents[3] / "lib64", package.parents[3] / "lib"]
    return found


class _Library:
    """The functions that Python needs. Raises OrbiteError when there is no library to call."""

    def __init__(self) -> None:
        self._library, self.path = self._open()
        abi = _made(_Abi)
        self._library.orbite_nixl_abi_query.argtypes = [POINTER(_Abi), POINTER(_Error)]
        self._call("abi_query", byref(abi))
        self.abi = (abi.abi_major, abi.abi_minor)
        self.version = abi.version.decode()
        if abi.abi_major != ABI_MAJOR or abi.abi_minor < ABI_MINOR:
            raise OrbiteError(
                f"{self.path} has ABI {abi.abi_major}.{abi.abi_minor}; this package needs "
                f"{ABI_MAJOR}.{ABI_MINOR} or a later minor version"
            )
        self._library.orbite_nixl_shared_import.argtypes = [
            c_int32, c_uint64, c_uint64, POINTER(c_uint64), POINTER(_Error)]
        self._library.orbite_nixl_shared_free.argtypes = [c_uint64, POINTER(_Error)]

    @staticmethod
    def _open() -> tuple[ctypes.CDLL, str]:
        loaded = _loaded()
        if len(loaded) > 1:
            raise OrbiteError("more than one liborbite_nixl.so is loaded into this process: "
                              + ", ".join(map(str, loaded)))
        if loaded:
            try:
                return ctypes.CDLL(str(loaded[0])), str(loaded[0])
            except OSError as error:
                raise OrbiteError(f"{loaded[0]} is loaded into this process and cannot be opened "
                                  f"again: {error}") from None
        candidates = [directory / SONAME for directory in _directories()]
        for candidate in candidates:
            if candidate.exists():
                try:
                    return ctypes.CDLL(str(candidate)), str(candidate)
                except OSError as error:
                    raise OrbiteError(f"{candidate} cannot be loaded: {error}") from None
        try:
            library = ctypes.CDLL(SONAME)
        except OSError:
            looked = "".join(f"\n  {candidate}" for candidate in candidates)
            raise OrbiteError(
                f"no {SONAME}: none is loaded into this process, the dynamic linker finds none, "
                f"and there is none at{looked}\nNIXL_PLUGIN_DIR may name its directory; "
                f"`make plugin` builds it."
            ) from None
        return library, str(next(iter(_loaded()), SONAME))

    def _call(self, name: str, *arguments: object) -> None:
        error = _made(_Error)
        status = getattr(self._library, f"orbite_nixl_{name}")(*arguments, byref(error))
        if status != 0:
            # A record that the library does not know stays empty.
            message = error.message.decode(errors="replace") or f"status {status} of {name}"
            raise OrbiteError(message, status, error.native_errno)

    def shared_import(self, descriptor: int, address: int, nbytes: int) -> int:
        shared = c_uint64()
        self._call("shared_import", descriptor, address, nbytes, byref(shared))
        return shared.value

    def shared_free(self, shared: int) -> None:
        self._call("shared_free", shared)


_lock = threading.Lock()
_instance: _Library | None = None


def library() -> _Library:
    global _instance
    with _lock:
        if _instance is None:
            _instance = _Library()
        return _instance


def info() -> dict[str, object]:
    """`version` of OrbiTE, `abi` as (major, minor), and the `path` of the loaded library."""
    found = library()
    return {"version": found.version, "abi": found.abi, "path": found.path}


def plugin_dir() -> str:
    """The directory of libplugin_ORBITE.so: a value for NIXL_PLUGIN_DIR."""
    directories = [path.parent for path in _loaded()] + _directories()
    for directory in directories:
        if (directory / PLUGIN).exists():
            return str(directory)
    looked = "".join(f"\n  {directory}" for directory in directories)
    raise OrbiteError(f"no {PLUGIN} in{looked}\n`make plugin` builds it.")
