"""From a directory to the event file: pieces in order, ours first, and nothing that is not compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from instrument.analyse import trace_files
from instrument.codec.trace import CHUNK_BYTES
from instrument.errors import CorruptFrame, RecordingError
from instrument.profiler.archive import archive_files, read_back
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target


@pytest.fixture
def sink(tmp_path: Path) -> Iterator[Sink]:
    opened = open_sink(Target(str(tmp_path / "run"), kind="profile", device=3), 0)
    yield opened
    opened.close()


def make(folder: Path, files: dict[str, bytes]) -> str:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return str(folder)


def test_random_files_come_back(tmp_path: Path, sink: Sink, rng: np.random.Generator) -> None:
    """Sizes around the pieces' one, empty files among them, in several windows of one file."""
    sizes = [
        0,
        1,
        CHUNK_BYTES - 1,
        CHUNK_BYTES,
        CHUNK_BYTES + 1,
        2 * CHUNK_BYTES,
        int(rng.integers(1, 3 * CHUNK_BYTES)),
    ]
    expected = []
    for number in range(2):
        files = {
            f"d{index % 2}/{'minddata_' * (index == 0)}{index}": rng.bytes(size) for index, size in enumerate(sizes)
        }
        directory = make(tmp_path / f"raw{number}", files)
        total = archive_files(directory, number, 3, "cpu", sink)
        assert total == sum(sizes)
        expected.append(files)
    found = trace_files.windows(sink.path)
    assert [{name: b"".join(parts) for name, parts in one.files.items()} for one in found] == expected
    assert [(one.number, one.device, one.problems) for one in found] == [(0, 3, []), (1, 3, [])]
    assert {(one.kinds["d0/minddata_0"], one.kinds["d1/1"]) for one in found} == {("minddata", "cpu")}
    assert max(len(part) for one in found for parts in one.files.values() for part in parts) == CHUNK_BYTES


def test_ours_stand_first(tmp_path: Path, sink: Sink) -> None:
    """What says what the window was survives when the end of the file is lost."""
    archive_files(make(tmp_path / "raw", {"a": b"1", "instrument.window.0.json": b"{}", "z": b""}), 0, 0, "gpu", sink)
    (found,) = trace_files.windows(sink.path)
    assert list(found.files) == ["instrument.window.0.json", "a", "z"]
    assert found.kinds == {"instrument.window.0.json": "instrument", "a": "gpu", "z": "gpu"}


def test_a_refused_piece_is_told(tmp_path: Path) -> None:
    """A sink that takes no more is an error with its path."""
    sink = open_sink(Target(str(tmp_path / "run"), kind="profile", max_file_bytes=1000), 0)
    directory = make(tmp_path / "raw", {"a": b"x" * 2000})
    with pytest.raises(RecordingError, match=r"events\.profile"):
        archive_files(directory, 0, 0, "cpu", sink)
    sink.close()


def test_a_file_that_is_gone_is_told(tmp_path: Path, sink: Sink) -> None:
    """The event file is read back by its path."""
    directory = make(tmp_path / "raw", {"a": b"x"})

    class Deaf:
        """A sink whose file holds nothing of it."""

        path, stats = sink.path, sink.stats

        def write(self, event: object) -> bool:
            return True

        def flush(self) -> None: ...

    with pytest.raises(RecordingError, match="does not hold what was written to it"):
        archive_files(directory, 0, 0, "cpu", Deaf())  # type: ignore[arg-type]


def test_reading_back_trusts_nothing(tmp_path: Path, sink: Sink) -> None:
    """A broken or unfinished frame is an error with its place."""
    archive_files(make(tmp_path / "raw", {"a": b"x" * 100}), 0, 0, "cpu", sink)
    whole = Path(sink.path).read_bytes()
    assert len(list(read_back(sink.path))) == 2
    assert list(read_back(sink.path, len(whole))) == []
    copy = tmp_path / "copy"
    copy.write_bytes(whole[:-1])
    with pytest.raises(CorruptFrame, match="the file ends inside a frame"):
        list(read_back(str(copy)))
    copy.write_bytes(whole[:-20] + b"?" + whole[-19:])
    with pytest.raises(CorruptFrame):
        list(read_back(str(copy)))
