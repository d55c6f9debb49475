# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os

from orbite import _library

_MFD_NOEXEC_SEAL = 0x8


def _memory_file(huge_pages: bool) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | (os.MFD_HUGETLB if huge_pages else 0)
    try:
        # A system may insist on files that cannot be executed; an old one does not know the word.
        return os.memfd_create("orbite", flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create("orbite", flags)


class SharedMemory(mmap.mmap):
    """Zeroed memory that engines of other processes on this host can map.

    It has the buffer protocol, so `numpy.frombuffer(memory, dtype=...)` is a writable view of it
    without a copy, which keeps it alive. With `huge_pages` it is rounded up to whole ones; OSError
    or OrbiteError when the system cannot give them.

    Register ranges of it with NIXL as any other memory. Close it when every registration of it is
    gone, or leave that to the garbage collector; what is still registered by then stays mapped.
    """

    def __new__(cls, nbytes: int, huge_pages: bool = False) -> SharedMemory:
        if not isinstance(nbytes, int) or nbytes <= 0:
            raise ValueError(f"{nbytes!r} bytes of shared memory; allowed: 1 and more")
        _library.library()
        descriptor = _memory_file(huge_pages)
        try:
            page = os.fstat(descriptor).st_blksize if huge_pages else 1
            size = (nbytes + page - 1) // page * page
            os.ftruncate(descriptor, size)
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self = super().__new__(cls, descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        # From here on it is its own to close.
        self._descriptor = descriptor
        self._shared = 0
        self._nbytes = size
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self))
        self._share()
        return self

    def __init__(self, nbytes: int, huge_pages: bool = False) -> None:
        """Everything is made in __new__, as for every mmap."""

    @property
    def address(self) -> int:
        self._check_open()
        return self._address

    @property
    def nbytes(self) -> int:
        return self._nbytes

    def close(self) -> None:
        """Unmaps it. BufferError, and nothing has changed, while views of it exist or a range of it
        is registered with an engine. A second call does nothing."""
        if self.closed:
            return
        self._forget()
        try:
            super().close()
        except BufferError:
            self._share()
            raise BufferError(
                f"shared memory of {self._nbytes} bytes has views (arrays, memoryviews) that are "
                f"still alive; delete them before closing it"
            ) from None
        self._close_descriptor()

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at 0x{self._address:x}"
        return f"<orbite.SharedMemory of {self._nbytes} bytes, {state}>"

    def __del__(self) -> None:
        # No view is left: each would keep it alive.
        try:
            if not self.closed:
                self._forget()
        except BufferError:
            # Registered: what an engine may touch is never unmapped.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self))
            return
        except AttributeError:
            pass  # it was never made
        self._close_descriptor()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("shared memory is closed")

    def _share(self) -> None:
        self._shared = _library.library().shared_import(
            self._descriptor, self._address, self._nbytes)

    def _forget(self) -> None:
        shared, self._shared = self._shared, 0
        if shared == 0:
            return
        try:
            _library.library().shared_free(shared)
        except _library.OrbiteError as error:
            if error.status == _library.ERR_ACTIVE:
                self._shared = shared
                raise BufferError(
                    f"shared memory of {self._nbytes} bytes is registered with an engine; "
                    f"deregister it before closing it"
                ) from None
            # In a child of the process that made it, it is not shared at all.
            if error.status != _library.ERR_FORKED:
                raise

    def _close_descriptor(self) -> None:
        descriptor = getattr(self, "_descriptor", -1)
        if descriptor >= 0:
            self._descriptor = -1
            os.close(descriptor)
