"""Appending: whole frames behind a known length, and nothing else, whatever the system calls answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from instrument.eventfile.writer import EventFileWriter, coalesce

needs_pwritev = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="this system has no pwritev to stand in for")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events"


@pytest.fixture
def writer(path: Path) -> Iterator[EventFileWriter]:
    writer = EventFileWriter(str(path))
    yield writer
    writer.close()


def write_at_most(counts: Sequence[int], then: BaseException | None = None) -> Callable[..., int]:
    """A pwritev that takes so many bytes of each call and then raises `then`, or works as usual."""
    real, left = os.pwritev, list(counts)

    def pwritev(fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        if left:
            return os.pwrite(fd, b"".join(pieces)[: left.pop(0)], offset)
        if then is not None:
            raise then
        return real(fd, pieces, offset)

    return pwritev


def test_append_returns_the_new_length(writer: EventFileWriter, path: Path) -> None:
    """Each append begins where the one before ended."""
    assert writer.append([b"one", b"", b"two"], 0) == 6
    assert writer.append([], 6) == 6
    assert writer.append([memoryview(b"three")], 6) == 11
    assert path.read_bytes() == b"onetwothree"


def test_the_first_append_cuts_off_what_is_not_committed(path: Path) -> None:
    """What a dead writer left behind the committed length is gone, even where less is written over it."""
    path.write_bytes(b"committed" + b"a long unfinished frame")
    writer = EventFileWriter(str(path))
    assert writer.append([b"next"], 9) == 13
    writer.close()
    assert path.read_bytes() == b"committednext"


def test_an_existing_file_is_kept(path: Path) -> None:
    """Opening writes nothing."""
    path.write_bytes(b"old")
    EventFileWriter(str(path)).close()
    assert path.read_bytes() == b"old"


def test_close_twice_and_sync(writer: EventFileWriter) -> None:
    """A second close does nothing; a sync returns."""
    writer.append([b"x"], 0)
    writer.sync()
    writer.close()
    writer.close()


@needs_pwritev
@pytest.mark.parametrize("counts", [[], [0], [1], [5], [9, 1, 0, 3]])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()], ids=["ENOSPC", "interrupt"])
def test_a_failed_append_leaves_the_committed_length(
    writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch, counts: list[int], error: BaseException
) -> None:
    """Whatever part was written is cut off again, and the next append works."""
    committed = writer.append([b"committed"], 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", write_at_most(counts, error))
        with pytest.raises(type(error)):
            writer.append([b"ten bytes.", b"more bytes"], committed)
    assert path.read_bytes() == b"committed"
    assert writer.append([b"!"], committed) == 10
    assert path.read_bytes() == b"committed!"


@needs_pwritev
def test_what_could_not_be_cut_off_is_cut_at_the_next_append(
    writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where even the cut fails, the next append does it before it writes."""
    committed = writer.append([b"committed"], 0)

    def ftruncate(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "no cut")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", write_at_most([7], OSError(errno.EIO, "no write")))
        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(OSError, match="no cut"):
            writer.append([b"unfinished"], committed)
    assert path.read_bytes() == b"committedunfinis"
    writer.append([b"!"], committed)
    assert path.read_bytes() == b"committed!"


def test_what_was_written_can_be_taken_back(writer: EventFileWriter, path: Path) -> None:
    """Several appends at once; what comes next stands where they stood. Nothing is added to a shorter file."""
    committed = writer.append([b"committed"], 0)
    writer.append([b"two"], writer.append([b"one"], committed))
    writer.cut(committed)
    assert path.read_bytes() == b"committed"
    writer.cut(100)
    assert path.read_bytes() == b"committed"
    assert writer.append([b"!"], committed) == 10
    assert path.read_bytes() == b"committed!"


def test_what_could_not_be_taken_back_is_cut_at_the_next_append(
    writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an append that failed."""
    committed = writer.append([b"committed"], 0)
    writer.append([b"one"], committed)

    def ftruncate(fd: int, length: int) -> None:
        raise OSError(errno.EIO, "no cut")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", ftruncate)
        with pytest.raises(OSError, match="no cut"):
            writer.cut(committed)
    writer.append([b"!"], committed)
    assert path.read_bytes() == b"committed!"


@needs_pwritev
def test_short_writes_are_continued(
    writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A system call that takes only a part, ending anywhere in any piece, loses and repeats nothing."""
    pieces = [rng.bytes(int(size)) for size in (3, 70_000, 0, 65_536, 10, 65_535, 100_000)]
    counts = [*rng.integers(0, 70_000, 6).tolist(), 1, 0, 65_536]
    monkeypatch.setattr(os, "pwritev", write_at_most(counts))
    assert writer.append(pieces, 0) == sum(map(len, pieces))
    assert path.read_bytes() == b"".join(pieces)


@needs_pwritev
def test_many_large_pieces_take_several_calls(
    writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call gets more pieces than the system takes, nor many megabytes; the bytes are those of all of them."""
    calls: list[int] = []
    real = os.pwritev

    def pwritev(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        calls.append(len(pieces))
        return real(fd, pieces, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    pieces = [bytes((index % 251,)) * 65_536 for index in range(1100)]
    assert writer.append(pieces, 0) == 1100 * 65_536
    assert max(calls) <= 512
    assert sum(calls) == 1100
    assert path.read_bytes() == b"".join(pieces)


def test_many_small_pieces_are_one(writer: EventFileWriter, path: Path) -> None:
    """Thousands of small pieces are joined; a large one between them is handed through as it is."""
    large = memoryview(bytes(65_536))
    pieces = [b"ab"] * 3000 + [large] + [b"c"] * 3000
    joined = coalesce(pieces)
    assert [len(piece) for piece in joined] == [6000, 65_536, 3000]
    assert joined[1] is large
    assert writer.append(pieces, 0) == 74_536
    assert path.read_bytes() == b"".join(pieces)


def test_without_pwritev(writer: EventFileWriter, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that lacks the call gets the same bytes at the same place."""
    monkeypatch.delattr(os, "pwritev", raising=False)
    pieces = [b"abc", bytes(65_536), b"", b"d" * 65_536, b"e"]
    assert writer.append(pieces, writer.append([b"first"], 0)) == 5 + 3 + 2 * 65_536 + 1
    assert path.read_bytes() == b"first" + b"".join(pieces)


FILL = """
import os, sys
from instrument.eventfile.writer import EventFileWriter
{prepare}
writer = EventFileWriter(sys.argv[1])
committed, errors = 0, set()
for size in (30_000, 30_000, 30_000, 1_000, 80_000, 2_000):
    try:
        committed = writer.append([bytes([65]) * size], committed)
    except OSError as error:
        errors.add(error.errno)
    assert os.path.getsize(sys.argv[1]) == committed, (os.path.getsize(sys.argv[1]), committed)
print(committed, sorted(errors))
"""


def test_a_real_limit_of_size(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Where the system really writes a part and then refuses, the part is cut off and smaller appends go on."""
    pytest.importorskip("resource", reason="this system has no limit on the size of files")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (65_536, 65_536))"
    script = FILL.format(prepare=limit).replace("sys.argv[1]", repr(str(tmp_path / "events")))
    assert run_python(script) == f"63000 [{errno.EFBIG}]\n"


@pytest.fixture
def small_disk(small_disk_of: Callable[[str], Path]) -> Path:
    """A file system of 64 KiB."""
    return small_disk_of("64k")


def test_a_full_disk(small_disk: Path, run_python: Callable[..., str]) -> None:
    """On a full disk an append fails, leaves no half frame, and a smaller one still fits."""
    script = FILL.format(prepare="").replace("sys.argv[1]", repr(str(small_disk / "events")))
    assert run_python(script) == f"63000 [{errno.ENOSPC}]\n"
