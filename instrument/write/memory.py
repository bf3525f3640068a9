"""Map the memory of a ring: its control words once, its data twice in a row.

The data of a ring is mapped twice, the second time right behind the first: what runs over its end is contiguous all
the same, so that no record is ever cut or padded.
"""

from __future__ import annotations

import ctypes
import mmap
import os

_MAP_FIXED = 0x10
_MADV_POPULATE_WRITE = 23


def round_up(size_bytes: int) -> int:
    """To a whole number of pages."""
    return size_bytes + -size_bytes % mmap.PAGESIZE


def map_twice(fd: int, offset: int, size_bytes: int) -> memoryview:
    """`size_bytes` of a file from `offset`, and the same once more behind them; both are whole numbers of pages.

    Raises:
        OSError: it cannot be mapped.
    """
    place = _reserve(2 * size_bytes)
    address = _address(place)
    for half in (address, address + size_bytes):
        _map_over(half, size_bytes, fd, offset)
    return memoryview(place)


def map_once(fd: int, offset: int, size_bytes: int) -> memoryview:
    """Map `size_bytes` of a file from `offset`, a whole number of pages; return as many pages as that needs.

    Raises:
        OSError: it cannot be mapped.
    """
    place = _reserve(round_up(size_bytes))
    _map_over(_address(place), round_up(size_bytes), fd, offset)
    return memoryview(place)


def _reserve(size_bytes: int) -> mmap.mmap:
    """Return a mapping that only reserves addresses, and gives them back when nobody uses them any more."""
    return mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _map_over(address: int, size_bytes: int, fd: int, offset: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
    )  # fmt: skip
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mmap(address, size_bytes, protection, mmap.MAP_SHARED | _MAP_FIXED, fd, offset) != address:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def detach(memory: memoryview) -> None:
    """Put zeros in the place of a mapped file: a mapping holds the file open, and with it the lock."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
    )  # fmt: skip
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
    libc.mmap(_address(memory), memory.nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)


def populate(memory: memoryview) -> None:
    """Have the pages of a mapping provided at once: their first touch one by one costs many copies.

    Other threads run meanwhile. Kernels before 5.14 refuse, and pages are mapped as they are touched.
    """
    if memory.nbytes:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(memory.nbytes), _MADV_POPULATE_WRITE)


def _address(memory: mmap.mmap | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
