"""The ring file around its records: header, names, control words, locks, creation."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from instrument.codec.dialects import LAYOUTS
from instrument.errors import CorruptMessage
from instrument.eventfile.crc import crc32c
from instrument.ringfile import control, header, locks
from instrument.ringfile.control import Control, State

RING_BYTES = 1 << 16


def some_header(**changed: object) -> header.Header:
    made = header.of_this_process("both", 2, RING_BYTES, 10**9, "export_1700000000")
    return made._replace(**changed)  # type: ignore[arg-type]


# ---------------------------------------------------------------------- header


def test_a_header_comes_back() -> None:
    """Every field of a header is read as it was written, with and without limit and export directory."""
    for changed in ({}, {"max_file_bytes": None}, {"export_directory": ""}, {"host": "gerät"}, {"host": ""}):
        made = some_header(**changed)
        assert header.decode(header.encode(made).ljust(4096, b"\0")) == made


def test_the_bytes_of_a_header() -> None:
    """Every byte stands where docs/format.md says."""
    made = header.Header(16384, 65536, 2, 77, 88, 99, None, 1.5, bytes(range(16)), 44, "node", "both", "e")
    data = header.encode(made)
    fields = struct.pack("<QQIIQQQd", 16384, 65536, 2, 77, 88, 99, 2**64 - 1, 1.5) + bytes(range(16))
    fields += struct.pack("<Q", 44)
    rest = (fields + b"\4\0node\4\0both\1\0e").ljust(2032, b"\0")
    assert data == b"INSTRING" + struct.pack("<II", 1, crc32c(rest)) + rest


def test_this_process() -> None:
    """A header names this process, and where data begin is a whole number of pages."""
    made = some_header()
    assert (made.pid, made.start_ticks) == (os.getpid(), locks.start_ticks(os.getpid()))
    assert made.start_ticks > 0
    assert made.boot_id == locks.boot_id() != bytes(16)
    assert made.data_at % mmap.PAGESIZE == 0
    assert made.data_at >= header.CONTROL_AT + 8 * control.CONTROL_WORDS


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"data_at": 4096}, "data begin"),
        ({"data_at": 1 << 40}, "data begin"),
        ({"data_at": 16385}, "data begin"),
        ({"ring_bytes": 0}, "rings of 0"),
        ({"ring_bytes": 1 << 50}, "rings of"),
        ({"ring_bytes": 4097}, "no whole pages"),
        ({"ring_count": 0}, "0 rings"),
        ({"ring_count": 65}, "65 rings"),
        ({"dialect": "klingon"}, "dialect"),
        ({"export_directory": "../../etc"}, "export directory"),
        ({"export_directory": ".."}, "export directory"),
        ({"export_directory": "/etc"}, "export directory"),
    ],
)
def test_a_hostile_header(changed: dict[str, object], reason: str) -> None:
    """A header whose checksum holds and whose numbers make no sense is refused, and so is any path."""
    with pytest.raises(CorruptMessage, match=reason):
        header.decode(header.encode(some_header(**changed)).ljust(4096, b"\0"))


def test_a_damaged_header() -> None:
    """Any changed byte and any cut is noticed; a later version is told apart, as far as it can be read."""
    good = header.encode(some_header()).ljust(4096, b"\0")
    for position in (*range(200), 2047):
        data = bytearray(good)
        data[position] ^= 0x10
        with pytest.raises(CorruptMessage):
            header.decode(data)
    for end in (0, 1, 15, 16, 2047, 4095):
        with pytest.raises(CorruptMessage, match="ends inside"):
            header.decode(good[:end])
    with pytest.raises(header.UnknownVersion, match="version 2"):
        header.decode(good[:8] + struct.pack("<I", 2) + good[12:])


def test_random_headers(rng: np.random.Generator) -> None:
    """Random bytes with a right checksum raise one kind of exception or make sense."""
    for _ in range(2000):
        rest = rng.bytes(2032)
        with pytest.raises(CorruptMessage):
            header.decode((b"INSTRING" + struct.pack("<II", 1, crc32c(rest)) + rest).ljust(4096, b"\0"))


def test_texts_that_are_too_long() -> None:
    """A host name that does not fit raises when the header is made."""
    with pytest.raises(ValueError, match="too many"):
        header.encode(some_header(host="h" * 3000))


# ---------------------------------------------------------------------- names


NAMES = ["events.out.events.summary.1.0.host_MS", "events.out.tfevents.1.host.5.0"]


def slots(*names: str) -> bytearray:
    data = bytearray(4096)
    for file, name in enumerate(names):
        encoded = header.encode_name(name)
        at = header.slot_at(file)
        data[at : at + len(encoded)] = encoded
    return data


def test_names_come_back() -> None:
    """Slots that were filled in give their names, the others none; any byte of a file system's name is kept."""
    assert header.decode_names(slots(NAMES[0], "", NAMES[1])) == [NAMES[0], "", NAMES[1], ""]
    odd = os.fsdecode(b"r\xc3\xa4\xff") + "." + NAMES[0]
    assert header.decode_names(slots(odd))[0] == odd
    assert bytes(slots(NAMES[0])[2048:2056]) == struct.pack("<II", crc32c(NAMES[0].encode()), len(NAMES[0]))


@pytest.mark.parametrize("name", ["/etc/passwd", "../" + NAMES[0], "notes.txt", "a/" + NAMES[0], ".bashrc"])
def test_a_hostile_name(name: str) -> None:
    """What is no base name of an event file is refused."""
    with pytest.raises(CorruptMessage):
        header.decode_names(slots(name))


def test_a_damaged_name() -> None:
    """Any changed byte of a slot is noticed."""
    for position in range(2048, 2056 + len(NAMES[0])):
        for change in (1, 0x80):
            data = slots(NAMES[0])
            data[position] ^= change
            with pytest.raises(CorruptMessage):
                header.decode_names(data)
    with pytest.raises(ValueError, match="bytes"):
        header.encode_name("n" * 505)


def test_names_of_ring_files() -> None:
    """Ring files are recognised by their names, hidden, and no event files; unfinished ones are not ring files."""
    name = header.file_name(3)
    assert name.startswith(".instrument-ring-")
    assert name.endswith(f"-{os.getpid()}-3")
    assert header.is_ring_file(name)
    assert not header.is_ring_file(name + header.PART_SUFFIX)
    assert not header.is_ring_file("events.out.events.summary.1.0.host_MS")


# ---------------------------------------------------------------------- control words


def words() -> memoryview:
    return memoryview(bytearray(8 * control.CONTROL_WORDS)).cast("Q")


def test_the_state_comes_back() -> None:
    """The state that was stored last counts, whatever was stored before it."""
    shared = Control(words())
    assert shared.state == State()
    with pytest.raises(CorruptMessage, match="ever stored"):
        shared.checked_state()
    for number in range(1, 6):
        state = State(*range(number, number + len(State._fields)))
        shared.state = state
        assert shared.state == shared.checked_state() == state
        assert shared.committed_sequence == number


def test_a_state_that_is_stored_half() -> None:
    """Until the version is stored the state before it counts: its slot is not touched."""
    shared = Control(words())
    shared.state = State(5, 100)
    before = shared.words.tolist()
    shared.state = State(6, 200)
    after = shared.words.tolist()
    for count in range(len(after)):
        half = [
            new if old != new and index else old for index, (old, new) in enumerate(zip(before, after, strict=True))
        ]
        half[count:] = before[count:]
        half[0] = before[0]
        other = words()
        other[:] = memoryview(struct.pack(f"={len(half)}Q", *half)).cast("B").cast("Q")
        assert Control(other).checked_state() == State(5, 100)


def test_a_damaged_state() -> None:
    """Any changed bit of the state that counts is noticed, its version's included."""
    shared = Control(words())
    shared.state = State(5, 100, 0, 5)
    for word in (control.VERSION, *range(24, 24 + 9), 24 + 15):
        for bit in range(32 if word != control.VERSION else 1):
            shared.words[word] ^= 1 << bit
            with pytest.raises(CorruptMessage):
                shared.checked_state()
            shared.words[word] ^= 1 << bit


def test_words_of_workers_share_no_line() -> None:
    """What trainer and worker write lies in lines of 64 bytes of their own."""
    lines = [
        control.word_of(worker, word) // 8
        for worker in range(control.MAX_WORKERS)
        for word in (control.TAIL, control.HEAD)
    ]
    assert len(set(lines)) == 2 * control.MAX_WORKERS
    assert max(lines) < control.CONTROL_WORDS // 8


# ---------------------------------------------------------------------- locks


HOLDER = """
import os, sys
from instrument.ringfile import locks
fd = os.open(sys.argv[1], os.O_RDWR)
print(locks.acquire_shared(fd), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Callable[[], subprocess.Popen[str]]:
    """Start a process that holds the read lock of `tmp_path / "ring"`."""
    (tmp_path / "ring").write_bytes(b"x")

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "ring")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        return process

    return start


def test_a_lock_lasts_as_long_as_a_process(tmp_path: Path, holder: Callable[[], subprocess.Popen[str]]) -> None:
    """A file is held until the last process that holds it was killed; then it can be taken, by one alone."""
    ring = os.open(tmp_path / "ring", os.O_RDWR)
    assert locks.is_held(ring) is False
    first, second = holder(), holder()
    assert locks.is_held(ring) is True
    assert not locks.acquire_exclusive(ring)
    first.kill()
    first.communicate()
    assert locks.is_held(ring) is True
    second.kill()
    second.communicate()
    assert locks.is_held(ring) is False
    assert locks.acquire_exclusive(ring)
    other = os.open(tmp_path / "ring", os.O_RDWR)
    assert locks.is_held(other) is True
    assert not locks.acquire_exclusive(other)
    assert not locks.acquire_shared(other)
    os.close(ring)
    assert locks.acquire_exclusive(other)
    os.close(other)


def test_asking_needs_no_right_to_write(tmp_path: Path, holder: Callable[[], subprocess.Popen[str]]) -> None:
    """A reader that may only read the file, and its directory, learns whether somebody lives."""
    process = holder()
    ring = os.open(tmp_path / "ring", os.O_RDONLY)
    assert locks.is_held(ring) is True
    process.kill()
    process.communicate()
    assert locks.is_held(ring) is False
    os.close(ring)


def test_a_descriptor_that_is_inherited_holds_on(tmp_path: Path) -> None:
    """A worker holds the trainer's lock through the descriptor that it inherited, after the trainer has closed it."""
    (tmp_path / "ring").write_bytes(b"x")
    fd = os.open(tmp_path / "ring", os.O_RDWR)
    assert locks.acquire_shared(fd)
    worker = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], pass_fds=[fd], stdin=subprocess.PIPE
    )
    os.close(fd)
    other = os.open(tmp_path / "ring", os.O_RDONLY)
    assert locks.is_held(other) is True
    worker.kill()
    worker.communicate()
    assert locks.is_held(other) is False
    os.close(other)


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks nobody can tell by them, and to take one raises."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    (tmp_path / "ring").write_bytes(b"x")
    fd = os.open(tmp_path / "ring", os.O_RDWR)
    monkeypatch.setattr(fcntl, "fcntl", refuse)
    assert locks.is_held(fd) is None
    assert not locks.acquire_shared(fd)
    with pytest.raises(OSError, match="No locks"):
        locks.acquire_exclusive(fd)
    os.close(fd)


def test_the_start_of_a_process() -> None:
    """A process that has ended, also one that nobody has waited for, has no start."""
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    assert locks.start_ticks(process.pid) > 0
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert locks.start_ticks(process.pid) == 0
    process.communicate()
    assert locks.start_ticks(process.pid) == 0


# ---------------------------------------------------------------------- creation


def test_a_new_file(tmp_path: Path) -> None:
    """A ring file is whole when it has its name: allocated, with its header, held; nothing else is left there."""
    made = some_header()
    path, fd = header.create(str(tmp_path), made)
    assert os.listdir(tmp_path) == [os.path.basename(path)]
    assert header.is_ring_file(os.path.basename(path))
    status = os.stat(path)
    assert status.st_size == made.file_bytes
    assert status.st_blocks * 512 >= made.file_bytes
    data = Path(path).read_bytes()
    assert header.decode(data) == made._replace(inode=status.st_ino)
    assert header.decode_names(data) == [""] * 4
    other = os.open(path, os.O_RDONLY)
    assert locks.is_held(other) is True
    os.close(other)
    assert fd >= 3
    assert not os.get_inheritable(fd)
    os.close(fd)


def test_files_of_one_process(tmp_path: Path) -> None:
    """Several recorders of one process have a file each; none replaces another."""
    made = [header.create(str(tmp_path), some_header()) for _ in range(3)]
    assert sorted(os.listdir(tmp_path)) == [header.file_name(number) for number in range(3)]
    os.remove(made[1][0])
    again, fd = header.create(str(tmp_path), some_header())
    assert again == made[1][0]
    for each in (*(descriptor for _, descriptor in made), fd):
        os.close(each)


def test_a_full_disk(small_disk_of: Callable[[str], Path]) -> None:
    """Where the data do not fit nothing is left behind."""
    folder = small_disk_of("64k")
    with pytest.raises(OSError, match="No space") as raised:
        header.create(str(folder), some_header())
    assert raised.value.errno == errno.ENOSPC
    assert os.listdir(folder) == []


def test_standard_streams_that_are_closed(tmp_path: Path) -> None:
    """In a program without standard streams the file does not become one of them."""
    code = f"""
import os
from instrument.ringfile import header
os.closerange(0, 3)
made = header.of_this_process("mindspore", 1, {RING_BYTES}, None)
path, fd = header.create({str(tmp_path)!r}, made)
os._exit(fd)
"""
    result = subprocess.run([sys.executable, "-c", code], check=False)
    assert result.returncode >= 3


def test_every_dialect_has_a_slot_a_file() -> None:
    """There are as many slots for names as a dialect has files."""
    assert max(len(layout.roles) for layout in LAYOUTS.values()) == 4
