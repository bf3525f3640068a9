"""Memory that a trainer shares with its workers: how it is made and mapped, its words, and a worker's configuration.

The memory is a file in the run's directory (`ringfile`), so that it outlives all processes. Where there can be none it
is anonymous, with the same content. All words are written by one side only, or by the trainer for a worker that is
dead.
"""

from __future__ import annotations

import ctypes
import json
import logging
import mmap
import os
import time
from contextlib import suppress
from typing import NamedTuple

from instrument.descriptors import above_streams
from instrument.ringfile import control, header, locks
from instrument.ringfile.control import CONTROL_WORDS, HEAD, TAIL, WORKER_PID, WORKER_START, Control, word_of
from instrument.ringfile.header import CONTROL_AT
from instrument.undo import UndoOnError
from instrument.write.ring import Ring

log = logging.getLogger("instrument")

#: A worker's own words, beside those that the format names.
_AWAITED, _CLAIMED, _READY, _AWAKE, _STALLED = 3, 4, 5, 6, 7
#: Of `mmap` and `madvise`.
_MAP_FIXED = 0x10
_MADV_POPULATE_WRITE = 23


class Config(NamedTuple):
    """The configuration of a worker, given at its start as one argument.

    Descriptors are numbers that it inherits; `bells` has one for each worker, and of `gate` each worker locks the byte
    of its number, so that a successor waits for its end. `directory` is that of the event files. Records with the
    numbers in `poisoned` are left out, and up to `last_suspect` records are committed singly. `trainer` is the number
    of the trainer's process, and `ring_path` the ring file, empty for anonymous memory.
    """

    worker: int
    memory: int
    gate: int
    bells: list[int]
    trainer_bell: int
    socket: int
    directory: str
    poisoned: list[int]
    last_suspect: int
    trainer: int
    ring_path: str

    def to_argument(self) -> str:
        """Return it as ASCII; file names may hold any bytes, and the worker another encoding for them."""
        plain = self._replace(directory=_as_latin(self.directory), ring_path=_as_latin(self.ring_path))
        return json.dumps(plain)

    @classmethod
    def from_argument(cls, argument: str) -> Config:
        config = cls(*json.loads(argument))
        return config._replace(directory=_from_latin(config.directory), ring_path=_from_latin(config.ring_path))


def _as_latin(path: str) -> str:
    return os.fsencode(path).decode("latin-1")


def _from_latin(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


class PoolMemory(Control):
    """The shared memory behind a descriptor: committed state, what each worker does, and a ring for each worker.

    Raises:
        OSError: it cannot be mapped.
        CorruptMessage: it is no ring file.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self.header = header.decode(os.pread(fd, CONTROL_AT, 0))
        self._count = self.header.ring_count
        # Not by `mmap.mmap`: it keeps a copy of the descriptor, and with it the lock.
        at, size_bytes = self.header.data_at, self.header.ring_bytes
        self._front = map_once(fd, 0, at)  # pages may be larger than what stands before the words
        super().__init__(self._front[CONTROL_AT:][: 8 * CONTROL_WORDS].cast("Q"))
        self._datas = [map_twice(fd, at + index * size_bytes, size_bytes) for index in range(self._count)]
        self.rings = [
            Ring(data, self.words, word_of(index, HEAD), word_of(index, TAIL)) for index, data in enumerate(self._datas)
        ]

    def detach(self) -> None:
        """Let the file go, at the end or in a forked child; nothing of it is used any more."""
        for data in (self._front, *self._datas):
            detach(data)

    def populate(self) -> None:
        """Have all pages of the rings provided now."""
        for data in self._datas:
            populate(data)

    @property
    def names(self) -> list[str]:
        """The names of the event files, in the order of the dialect; empty for one that is not made yet."""
        return header.decode_names(os.pread(self._fd, CONTROL_AT, 0))

    def set_name(self, file: int, name: str) -> None:
        os.pwrite(self._fd, header.encode_name(name), header.slot_at(file))

    def mark_ready(self, index: int) -> None:
        """Publish that worker `index`, which is this process, is ready to look into its ring."""
        pid = os.getpid()
        self.words[word_of(index, WORKER_START)] = locks.start_ticks(pid)
        self.words[word_of(index, WORKER_PID)] = pid
        self.words[word_of(index, _READY)] = 1

    def is_ready(self, index: int) -> bool:
        """Return True if worker `index` has come as far as looking into its ring."""
        return bool(self.words[word_of(index, _READY)])

    def is_awake(self, index: int) -> bool:
        """Return True if worker `index` will look into its ring without its bell."""
        return bool(self.words[word_of(index, _AWAKE)])

    def set_awake(self, index: int, awake: bool) -> None:
        self.words[word_of(index, _AWAKE)] = awake

    @property
    def is_closing(self) -> bool:
        """True when the trainer gives up what cannot be written now."""
        return bool(self.words[control.IS_CLOSING])

    def give_up(self) -> None:
        self.words[control.IS_CLOSING] = 1

    @property
    def is_over(self) -> bool:
        """True when the workers have to end."""
        return bool(self.words[control.IS_OVER])

    def end(self) -> None:
        self.words[control.IS_OVER] = 1

    @property
    def is_stalled(self) -> bool:
        """True if a worker holds events that cannot be written at the moment."""
        return any(self.words[word_of(index, _STALLED)] for index in range(self._count))

    @property
    def stalled_seconds(self) -> float:
        """Seconds since the first of them found that they cannot be written; 0 if none did."""
        began = [self.words[word_of(index, _STALLED)] for index in range(self._count)]
        return max((time.monotonic() - ms / 1000 for ms in began if ms), default=0.0)

    def set_stalled(self, index: int, began_ms: int) -> None:
        """Publish since when worker `index` is stalled, in milliseconds on the monotonic clock; 0 for not stalled."""
        self.words[word_of(index, _STALLED)] = began_ms

    def claim(self, index: int, sequence: int) -> None:
        """Publish that worker `index` begins with a record: if it dies, that record is suspected."""
        self.words[word_of(index, _CLAIMED)] = sequence

    @property
    def is_busy(self) -> bool:
        """True if a worker is in the middle of an event."""
        committed = self.committed_sequence
        return any(self.words[word_of(index, _CLAIMED)] > committed for index in range(self._count))

    def await_turn(self, index: int, sequence: int) -> None:
        """Have the bell of worker `index` rung when everything before `sequence` is committed; 0: no longer."""
        self.words[word_of(index, _AWAITED)] = sequence

    def waiting_for(self, sequence: int) -> int | None:
        """Return the worker that waits to commit `sequence`."""
        for index in range(self._count):
            if self.words[word_of(index, _AWAITED)] == sequence:
                return index
        return None

    def reset_worker(self, index: int) -> int:
        """Make the words of a dead worker those of a new one; return the record that it had claimed, 0 for none."""
        claimed = self.words[word_of(index, _CLAIMED)]
        for word in (_AWAITED, _CLAIMED, _READY, _AWAKE, _STALLED, WORKER_PID, WORKER_START):
            self.words[word_of(index, word)] = 0
        return claimed if claimed > self.committed_sequence else 0


#: Why ring files could not be made: logged once each.
_logged: set[str] = set()


def create_memory(directory: str, first: header.Header) -> tuple[str, int, PoolMemory]:
    """Make the memory of a recorder: a ring file in its directory, or anonymous memory where there can be none.

    Return the path of the ring file (empty for anonymous memory), the descriptor and the memory.

    Raises:
        OSError: there is no memory, or no descriptor.
    """
    try:
        path, fd = header.create(directory, first)
        with UndoOnError(os.unlink, path), UndoOnError(os.close, fd):
            return path, fd, PoolMemory(fd)
    except OSError as error:
        reason = os.strerror(error.errno or 0)
    if reason not in _logged:
        _logged.add(reason)
        log.warning(
            "There can be no ring file in %s (%s): if all processes of the training are killed at once, what they have "
            "not written yet is lost. Everything else is as with one.", directory, reason,
        )  # fmt: skip
    fd = above_streams(os.memfd_create("instrument", os.MFD_CLOEXEC))
    with UndoOnError(os.close, fd):
        locks.acquire_shared(fd)
        header.initialise(fd, first, allocates=False)
        return "", fd, PoolMemory(fd)


def remove(path: str, fd: int) -> None:
    """Remove a ring file that holds nothing any more; its directory may have been renamed meanwhile."""
    for candidate in (path, f"/proc/self/fd/{fd}"):
        try:
            place = candidate if candidate == path else os.readlink(candidate)
            if os.path.samestat(os.stat(place, follow_symlinks=False), os.fstat(fd)):
                os.unlink(place)
                return
        except OSError:
            continue  # somebody else has done it, or the directory cannot be written any more


# ---------------------------------------------------------------------- mapping


def round_up(size_bytes: int) -> int:
    """Round up to a whole number of pages."""
    return size_bytes + -size_bytes % mmap.PAGESIZE


def map_twice(fd: int, offset: int, size_bytes: int) -> memoryview:
    """Map `size_bytes` of a file from `offset` twice in a row; both are whole numbers of pages.

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


def _map_over(address: int, size_bytes: int, fd: int, offset: int, flags: int = mmap.MAP_SHARED) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
    )  # fmt: skip
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    if libc.mmap(address, size_bytes, protection, flags | _MAP_FIXED, fd, offset) != address:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def detach(memory: memoryview) -> None:
    """Put zeros in the place of a mapped file: a mapping holds the file open, and with it the lock."""
    with suppress(OSError):  # it stays mapped until the end of the process
        _map_over(_address(memory), memory.nbytes, -1, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def populate(memory: memoryview) -> None:
    """Have the pages of a mapping provided at once: their first touch one by one costs many copies.

    Other threads run meanwhile. Kernels before 5.14 refuse, and pages are mapped as they are touched.
    """
    if memory.nbytes:
        libc = ctypes.CDLL(None)
        libc.madvise(ctypes.c_void_p(_address(memory)), ctypes.c_size_t(memory.nbytes), _MADV_POPULATE_WRITE)


def _address(memory: mmap.mmap | memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
