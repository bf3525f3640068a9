"""Header of a ring file: who wrote it, for which event files, and where its parts lie; and how such a file is made.

The problem: a ring file is found by processes that did not make it, perhaps on another machine, perhaps years later,
perhaps damaged or made by somebody hostile. They have to tell if its processes still live, and which files it is for.

The strategy: the first 2,048 bytes are written once, before the file has its name. Behind them are slots for the names
of the event files, each filled in when its file is made. Both have checksums. Names are base names of event files,
never paths: recovery of a hostile file writes nowhere but into event files of the ring's own directory.

    0      header: fixed fields, then host, dialect and export directory as texts
    2048   four slots of 512 bytes for the names of the event files
    4096   control words (`control.py`)
    ...    the data of each ring, from a multiple of the page size on

A file is made under another name, allocated, locked and filled in, and then renamed: a process that finds it by its
name finds it whole. Its data are allocated since touching a hole while the disk is full kills a process.

Rejected: one file for the header and one for each ring, and texts such as JSON. Several files can be copied or deleted
apart from each other, and texts have no place of fixed size that a slot can be filled into later.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
import struct
import time
from typing import NamedTuple

from instrument.codec.dialects import LAYOUTS
from instrument.descriptors import above_streams
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.crc import crc32c
from instrument.ringfile import locks
from instrument.ringfile.control import CONTROL_WORDS, MAX_WORKERS
from instrument.undo import UndoOnError

MAGIC = b"INSTRING"
VERSION = 1
CONTROL_AT = 4096
_NAMES_AT, _SLOT_BYTES, _SLOTS = 2048, 512, 4
#: A ring larger than this is none of a recorder's.
MOST_RING_BYTES = 1 << 32

_START = struct.Struct("<8sII")
#: Data at, bytes of a ring, rings, process, its start, its namespace, most bytes of an event file, time, boot, inode.
_FIELDS = struct.Struct("<QQIIQQQd16sQ")
_LENGTH = struct.Struct("<H")
_SLOT = struct.Struct("<II")
_NO_LIMIT = 0xFFFFFFFFFFFFFFFF
_NAME = re.compile(r"\.instrument-ring-.+-\d+-\d+", re.ASCII | re.DOTALL)
#: What a ring file is called until it is whole; one that no process holds may be removed.
PART_SUFFIX = ".part"
_ATTEMPTS = 100


class UnknownVersion(CorruptMessage):
    """A ring file of a later release, which is left alone."""


class Header(NamedTuple):
    """What a ring file says of itself.

    `inode` is its own, which distinguishes a copy from the file that a recorder used. `export_directory` is a base
    name, empty where tensors are not exported.
    """

    data_at: int
    ring_bytes: int
    ring_count: int
    pid: int
    start_ticks: int
    pid_namespace: int
    max_file_bytes: int | None
    created: float
    boot_id: bytes
    inode: int
    host: str
    dialect: str
    export_directory: str

    @property
    def file_bytes(self) -> int:
        return self.data_at + self.ring_count * self.ring_bytes


def of_this_process(
    dialect: str, ring_count: int, ring_bytes: int, max_file_bytes: int | None, export_directory: str = ""
) -> Header:
    """Return the header of a file that this process is about to make; `ring_bytes` is a whole number of pages."""
    page = os.sysconf("SC_PAGE_SIZE")
    data_at = CONTROL_AT + 8 * CONTROL_WORDS
    pid = os.getpid()
    return Header(
        data_at + -data_at % page, ring_bytes, ring_count, pid, locks.start_ticks(pid), locks.pid_namespace(),
        max_file_bytes, time.time(), locks.boot_id(), 0, platform.node(), dialect, export_directory,
    )  # fmt: skip


def encode(header: Header) -> bytes:
    """Return the bytes that a ring file begins with, up to the slots for names."""
    limit = _NO_LIMIT if header.max_file_bytes is None else header.max_file_bytes
    fields = _FIELDS.pack(
        header.data_at, header.ring_bytes, header.ring_count, header.pid, header.start_ticks, header.pid_namespace,
        limit, header.created, header.boot_id, header.inode,
    )  # fmt: skip
    texts = b"".join([_LENGTH.pack(len(text)) + text for text in map(os.fsencode, header[-3:])])
    rest = (fields + texts).ljust(_NAMES_AT - _START.size, b"\0")
    if len(rest) != _NAMES_AT - _START.size:
        raise ValueError(f"host and export directory have {len(texts)} bytes, too many for a ring file's header")
    return _START.pack(MAGIC, VERSION, crc32c(rest)) + rest


def decode(data: bytes | memoryview) -> Header:
    """Return the header in the first bytes of a file.

    Raises:
        UnknownVersion: a later release wrote it.
        CorruptMessage: it is none, or its numbers contradict each other.
    """
    if len(data) < CONTROL_AT:
        raise CorruptMessage(f"a ring file of {len(data)} bytes ends inside its header")
    magic, version, crc = _START.unpack_from(data)
    if magic != MAGIC:
        raise CorruptMessage("it does not begin as a ring file does")
    if version > VERSION:
        raise UnknownVersion(f"it has version {version}, and this release reads version {VERSION}")
    rest = bytes(data[_START.size : _NAMES_AT])
    if crc32c(rest) != crc:
        raise CorruptMessage("the checksum of its header is wrong")
    data_at, ring_bytes, count, pid, start, namespace, limit, created, boot, inode = _FIELDS.unpack_from(rest)
    texts, offset = [], _FIELDS.size
    for _ in range(3):
        (length,) = _LENGTH.unpack_from(rest, min(offset, len(rest) - _LENGTH.size))
        offset += _LENGTH.size + length
        if offset > len(rest):
            raise CorruptMessage("a text of its header does not end")
        texts.append(os.fsdecode(rest[offset - length : offset]))
    header = Header(
        data_at,
        ring_bytes,
        count,
        pid,
        start,
        namespace,
        None if limit == _NO_LIMIT else limit,
        created,
        boot,
        inode,
        *texts,
    )
    _check(header)
    return header


def _check(header: Header) -> None:
    least = CONTROL_AT + 8 * CONTROL_WORDS
    if not (least <= header.data_at <= 1 << 24 and header.data_at % CONTROL_AT == 0):
        raise CorruptMessage(f"its data begin at {header.data_at}")
    if not (0 < header.ring_count <= MAX_WORKERS and 0 < header.ring_bytes <= MOST_RING_BYTES):
        raise CorruptMessage(f"it has {header.ring_count} rings of {header.ring_bytes} bytes")
    if header.ring_bytes % CONTROL_AT:
        raise CorruptMessage(f"its rings have {header.ring_bytes} bytes, which are no whole pages")
    if header.dialect not in LAYOUTS:
        raise CorruptMessage(f"its dialect is {header.dialect!r}")
    directory = header.export_directory
    if directory and (os.path.basename(directory) != directory or directory in (os.curdir, os.pardir)):
        raise CorruptMessage(f"its export directory is {directory!r}")


def encode_name(name: str) -> bytes:
    """Return the bytes of a slot that holds the base name of an event file; they belong at `slot_at`."""
    data = os.fsencode(name)
    if len(data) > _SLOT_BYTES - _SLOT.size:
        raise ValueError(f"the name of an event file has {len(data)} bytes")
    return _SLOT.pack(crc32c(data), len(data)) + data


def slot_at(file: int) -> int:
    """Return where in the ring file the slot of a dialect's file begins."""
    return _NAMES_AT + file * _SLOT_BYTES


def decode_names(data: bytes | memoryview) -> list[str]:
    """Return the names in the slots of a ring file, empty for a file that was not made yet.

    Raises:
        CorruptMessage: a slot is damaged, or holds no name of an event file.
    """
    return [_decode_name(data, slot_at(file)) for file in range(_SLOTS)]


def _decode_name(data: bytes | memoryview, offset: int) -> str:
    crc, length = _SLOT.unpack_from(data, offset)
    if not length:
        return ""
    if length > _SLOT_BYTES - _SLOT.size:
        raise CorruptMessage(f"the name of an event file claims {length} bytes")
    encoded = bytes(data[offset + _SLOT.size : offset + _SLOT.size + length])
    if crc32c(encoded) != crc:
        raise CorruptMessage("the checksum of an event file's name is wrong")
    name = os.fsdecode(encoded)
    if os.path.basename(name) != name or "\0" in name or names.recognise(name) is None:
        raise CorruptMessage(f"{name!r} is no name of an event file")
    return name


def file_name(number: int) -> str:
    """Return the name of this process's ring file with a number."""
    return f"{names.RING_PREFIX}{names.host()}-{os.getpid()}-{number}"


def is_ring_file(name: str) -> bool:
    """Return True for the base name of a ring file."""
    return name.startswith(names.RING_PREFIX) and _NAME.fullmatch(name) is not None


# ---------------------------------------------------------------------- making the file


def create(directory: str, header: Header) -> tuple[str, int]:
    """Make a ring file that this process holds, with its data allocated; return its path and an open descriptor.
    Raises:
        OSError: the file cannot be made, allocated or mapped there.
    """
    for number in itertools.count():
        path = os.path.join(directory, file_name(number))
        partial = path + PART_SUFFIX
        try:
            fd = _open(partial)  # nobody else makes this path now
        except FileExistsError:
            if number < _ATTEMPTS:
                continue
            raise
        with UndoOnError(_discard, fd, partial):
            is_taken = os.path.lexists(path)
            if not is_taken:
                locks.acquire_shared(fd)
                initialise(fd, header)
                os.rename(partial, path)
        if not is_taken:
            return path, fd
        _discard(fd, partial)
    raise AssertionError("there is no end of numbers")


def initialise(fd: int, header: Header, allocates: bool = True) -> None:
    """Give an empty file its size and its header; anonymous memory need not be allocated.

    Raises:
        OSError: there is no room.
    """
    if allocates:
        os.posix_fallocate(fd, 0, header.file_bytes)
    else:
        os.ftruncate(fd, header.file_bytes)
    os.pwrite(fd, encode(header._replace(inode=os.fstat(fd).st_ino)), 0)


def _open(path: str) -> int:
    """Open a new file."""
    return above_streams(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))


def _discard(fd: int, path: str) -> None:
    """Close and remove a file."""
    os.close(fd)
    _remove(path)


def _remove(path: str) -> None:
    try:
        os.remove(path)
    except OSError:
        pass
