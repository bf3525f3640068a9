"""Windows out of trace event files, whole and damaged: what is there is right, what is not is named with its size."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from instrument.analyse import trace_files
from instrument.codec import event, trace
from instrument.errors import NoSuchRun
from instrument.runs.run import read_run
from instrument.values import Event, MessageItem, Trace
from tests.runs.build import SECONDS, framed

HOST = "0.host_MS"


def piece(name: str, data: bytes, offset: int = 0, total: int | None = None, window: int = 0, device: int = 0) -> Trace:
    return Trace(window, "cpu", device, name, offset, len(data) if total is None else total, data)


def frames(pieces: Iterable[Trace]) -> list[bytes]:
    items = [MessageItem("trace", one.name, trace.encode(one)) for one in pieces]
    payloads = [payload for item in items for payload in event.encode(Event(0, 1.0, [item]))]
    return [framed(event.encode_version(1.0)), *map(framed, payloads)]


def write(directory: Path, pieces: Iterable[Trace], seconds: int = SECONDS) -> Path:
    path = directory / f"events.out.events.profile.{seconds}.{HOST}"
    path.write_bytes(b"".join(frames(pieces)))
    return path


def contents(window: trace_files.StoredWindow) -> dict[str, bytes]:
    return {name: b"".join(parts) for name, parts in window.files.items()}


def test_files_are_put_together(tmp_path: Path) -> None:
    """Pieces of several files, windows and devices, in whatever order, and an empty file."""
    pieces = [
        piece("a", b"12", 0, 5), piece("b/c", b"x"), piece("a", b"345", 2, 5), piece("e", b""),
        piece("a", b"other", window=1), piece("a", b"device", device=1),
    ]  # fmt: skip
    found = trace_files.windows(write(tmp_path, pieces))
    assert [(one.number, one.device, contents(one), one.problems) for one in found] == [
        (0, 0, {"a": b"12345", "b/c": b"x", "e": b""}, []),
        (1, 0, {"a": b"other"}, []),
        (0, 1, {"a": b"device"}, []),
    ]
    assert found[0].kinds == {"a": "cpu", "b/c": "cpu", "e": "cpu"}
    assert len(found[0].files["a"]) == 2


def test_a_directory_has_all_its_files(tmp_path: Path) -> None:
    """The oldest first; a summary beside them is none, and they are no summary. A run has both."""
    later = write(tmp_path, [piece("a", b"2")], SECONDS + 1)
    first = write(tmp_path, [piece("a", b"1")])
    (tmp_path / f"events.out.events.summary.{SECONDS}.{HOST}").write_bytes(b"")
    found = trace_files.windows(tmp_path)
    assert [(one.path, contents(one)) for one in found] == [(str(first), {"a": b"1"}), (str(later), {"a": b"2"})]
    run = read_run(tmp_path)
    assert run.files == [str(tmp_path / f"events.out.events.summary.{SECONDS}.{HOST}")]
    assert run.traces == [str(first), str(later)]


def test_gaps_are_named(tmp_path: Path) -> None:
    """A piece that does not follow is left out, and so is what is behind it; both are said with their sizes."""
    (found,) = trace_files.windows(
        write(tmp_path, [piece("a", b"12", 0, 9), piece("a", b"56789", 4, 9), piece("b", b"1")])
    )
    assert contents(found) == {"a": b"12", "b": b"1"}
    assert found.problems == [
        ("a", "a piece at 4 of 9 bytes follows the first 2 of 9", 5),
        ("a", "the last 7 of 9 bytes are missing", 7),
    ]


def test_a_file_written_twice_is_told(tmp_path: Path) -> None:
    (found,) = trace_files.windows(write(tmp_path, [piece("a", b"12"), piece("a", b"34")]))
    assert contents(found) == {"a": b"12"}
    assert found.problems == [("a", "a piece at 0 of 2 bytes follows the first 2 of 2", 2)]


def test_a_cut_file_keeps_what_is_whole(tmp_path: Path, rng: np.random.Generator) -> None:
    """Cut anywhere: each file is a true beginning of itself, and every byte that is missing is told."""
    files = {"a": rng.bytes(500), "b": rng.bytes(700)}
    pieces = [
        piece(name, data[at : at + 100], at, len(data))
        for name, data in files.items()
        for at in range(0, len(data), 100)
    ]
    path = write(tmp_path, pieces)
    whole = path.read_bytes()
    for size in rng.integers(200, len(whole), 40).tolist():
        path.write_bytes(whole[:size])
        (found,) = trace_files.windows(path)
        missing = {name: len(files[name]) - len(data) for name, data in contents(found).items()}
        assert all(files[name].startswith(data) for name, data in contents(found).items())
        told = {one.file: one.amount for one in found.problems if one.file in files}
        assert told == {name: amount for name, amount in missing.items() if amount}


def test_a_broken_frame_is_told(tmp_path: Path) -> None:
    """The rest of the file is read; the place is named."""
    parts = frames([piece("a", b"x" * 50), piece("b", b"y" * 50), piece("c", b"z")])
    parts[2] = parts[2][:40] + b"?" + parts[2][41:]
    path = tmp_path / f"events.out.events.profile.{SECONDS}.{HOST}"
    path.write_bytes(b"".join(parts))
    (found,) = trace_files.windows(path)
    assert contents(found) == {"a": b"x" * 50, "c": b"z"}
    ((file, what, amount),) = found.problems
    assert (file, amount) == (str(path), len(parts[2]))
    assert what.startswith(f"at byte {len(parts[0]) + len(parts[1])}: ")


def test_a_message_that_is_none_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, [piece("a", b"1")])
    with path.open("ab") as file:
        file.write(framed([b"\xa2\x06\x02\x08"]))
    (found,) = trace_files.windows(path)
    assert [one.file for one in found.problems] == [str(path)]


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    """Nothing, a file without a window and a file that is none at all: each says what it is."""
    with pytest.raises(NoSuchRun, match="holds no trace event file"):
        trace_files.windows(tmp_path)
    empty = write(tmp_path, [])
    with pytest.raises(NoSuchRun, match=r"holds no window of a profile$"):
        trace_files.windows(empty)
    (tmp_path / "text").write_text("not an event file")
    with pytest.raises(NoSuchRun, match=r"text is a text file; a profile is a run, one of its trace event files"):
        trace_files.windows(tmp_path / "text")
    with pytest.raises(OSError, match="missing"):
        trace_files.windows(tmp_path / "missing")


def test_random_bytes_never_raise_anything_else(tmp_path: Path, rng: np.random.Generator) -> None:
    """Changed bytes lead to windows with problems, or to the one error."""
    whole = b"".join(frames([piece(str(number), rng.bytes(60)) for number in range(6)]))
    path = tmp_path / f"events.out.events.profile.{SECONDS}.{HOST}"
    for _ in range(100):
        data = bytearray(whole)
        for place in rng.integers(0, len(data), 5).tolist():
            data[place] = int(rng.integers(0, 256))
        path.write_bytes(bytes(data))
        try:
            found = trace_files.windows(path)
        except NoSuchRun:
            continue
        for one in found:
            assert len(one.files) == 6 or one.problems
