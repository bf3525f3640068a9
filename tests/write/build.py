"""Events to write, and what an independent reader finds in the files."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from instrument.codec import lineage, outline
from instrument.eventfile import names
from instrument.eventfile.blocks import EventFileReader
from instrument.values import ArrayItem, Event, Gap, MessageItem, Record, ScalarItem

ROOT = Path(__file__).resolve().parents[2]


def scalar(step: int, value: float | None = None, tag: str = "loss") -> Event:
    """One number; its value is the step where none is given, and its time is that of the call."""
    return Event.of(step, time.time(), (ScalarItem(tag, float(step if value is None else value)),))


def tensor(step: int, elements: int, tag: str = "weight") -> Event:
    """A float32 tensor filled with the step."""
    return Event.of(step, time.time(), (ArrayItem("tensor", tag, np.full(elements, step, np.float32), "float32"),))


def custom(step: int, text: str = "x") -> Event:
    """An event for the lineage file."""
    return Event.of(
        step, time.time(), (MessageItem("custom_lineage_data", "info", lineage.custom_message({"text": text})),)
    )


def both(step: int) -> Event:
    """A number and an event for the lineage file, as one."""
    return custom(step)._replace(scalars={"loss": float(step)})


def records(path: str | os.PathLike[str]) -> list[Record]:
    """Everything in a summary file but gaps, in file order; the file must be whole."""
    return [record for record in all_records(path) if record.kind != "gap"]


def gaps(path: str | os.PathLike[str]) -> list[Gap]:
    """What a summary file says that it misses, in file order."""
    return [record.value for record in all_records(path) if isinstance(record.value, Gap)]


def all_records(path: str | os.PathLike[str]) -> list[Record]:
    """Values and gaps; the file must be whole."""
    reader = EventFileReader(os.fspath(path))
    result = [record for payload in reader for record in outline.records(payload)]
    assert reader.damage == []
    return result


def steps(path: str | os.PathLike[str]) -> list[int]:
    return [record.step for record in records(path)]


def numbers(path: str | os.PathLike[str]) -> list[tuple[int, float]]:
    """Step and value of each scalar, step and the value that fills it of each tensor, in file order."""
    return [(record.step, _number(record.value)) for record in records(path)]


def _number(value: Any) -> float:
    if not hasattr(value, "array"):
        return float(value.value)
    flat = value.array.reshape(-1)
    assert (flat == flat[0]).all()
    return float(flat[0])


def frame_count(path: str | os.PathLike[str]) -> int:
    """The frames of a whole file, a version included."""
    reader = EventFileReader(os.fspath(path))
    count = sum(1 for _ in reader)
    assert reader.damage == []
    return count


def files(directory: Path, lineage: bool = False) -> list[Path]:
    """The summary files (or the lineage files) of a directory in the order of their names."""
    found = []
    for path in sorted(directory.iterdir()):
        parsed = names.parse(path.name)
        if parsed is not None and parsed.is_lineage == lineage:
            found.append(path)
    return found


def only_file(directory: Path) -> Path:
    (path,) = files(directory)
    return path


def wait_until(is_true: Callable[[], bool], seconds: float = 20.0) -> None:
    """Return as soon as the condition holds; fail where it does not within `seconds`."""
    never = threading.Event()
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline, "the condition did not come true"
        never.wait(0.005)


def workers(directory: str | os.PathLike[str]) -> list[psutil.Process]:
    """The live workers that write below a directory, whoever their parent is now."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            is_one = "instrument.write.worker" in command and os.fspath(directory) in command[-1]
        except psutil.Error:
            continue  # it ended meanwhile
        if is_one and process.status() != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


def wait_for_workers_to_end(directory: str | os.PathLike[str], seconds: float = 20.0) -> None:
    wait_until(lambda: not workers(directory), seconds)


@contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing can be written during the block."""

    def pwritev(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        raise OSError(errno.ENOSPC, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", pwritev)
        yield
