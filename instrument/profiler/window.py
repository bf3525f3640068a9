"""One window: a directory for its raw files, the marks of the host beside them, and a description of what ran.

A window that is opened is closed, whatever ends it. A window that lacks some of the requested steps says why.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from instrument import framework, marks
from instrument._version import __version__
from instrument.profiler.archive import OWN_PREFIX
from instrument.profiler.backends import Backend

#: A mark of the host, 40 bytes. Times are nanoseconds since the epoch; the duration is -1 if the mark had not ended;
#: `number` is that of a step or epoch, else -1; `name` is the index in the list of names beside the marks; `kind` is 0
#: for a user's span, 1 for a step, 2 for an epoch, 3 for a callback of instrument.
MARK = np.dtype(
    [
        ("start_ns", "<i8"), ("duration_ns", "<i8"), ("thread", "<i8"), ("number", "<i8"), ("name", "<u4"),
        ("kind", "u1"), ("reserved", "u1", (3,)),
    ]
)  # fmt: skip

_numbers = itertools.count()


@dataclass(frozen=True)
class WindowRange:
    """The first and the last of the `steps` or `epochs` that a window is for. Without both it is open until `stop`."""

    steps: tuple[int, int] | None = None
    epochs: tuple[int, int] | None = None

    def __str__(self) -> str:
        unit, ends = ("epochs", self.epochs) if self.epochs else ("steps", self.steps)
        return f"{unit} {ends[0]} to {ends[1]}" if ends else "until stop()"


class ProfilerWindow:
    """A window that is open from its construction on, which waits for the operators that were called before.

    Raises:
        Exception: whatever the backend raises. Nothing is left behind then.
    """

    def __init__(self, output_path: str, backend: Backend, rank: int, request: WindowRange) -> None:
        self.request = request
        self.directory = _make_directory(output_path, rank)
        self._backend = backend
        self._rank = rank
        #: How many marks did not fit; known when the window is closed.
        self.dropped = 0
        #: What an operator raised that was still running when the window closed.
        self.error: Exception | None = None
        with ExitStack() as on_failure:
            on_failure.callback(shutil.rmtree, self.directory, ignore_errors=True)
            on_failure.callback(marks.close_window)
            self.marks = marks.open_window(settle=framework.wait_for_operators)
            backend.start(self.directory)
            on_failure.pop_all()
        # The data pipeline's times are of the monotonic clock, too: the same moment on both joins them.
        self.start_monotonic_ns = time.monotonic_ns()
        self.start_ns = self.marks.wall_ns(self.start_monotonic_ns)

    def close(self, reason: str, metadata: Mapping[str, object]) -> str:
        """Close the window and write its description. `reason` says what cut it short, empty if nothing did.

        Return why the window is not complete, empty if it is.
        """
        try:
            framework.wait_for_operators()
        except framework.OPERATOR_ERRORS as error:  # raised again when the window is safe
            self.error = error
            reason = reason or f"{type(error).__name__}: {error}"
        finally:
            stop_ns = self.marks.wall_ns(time.monotonic_ns())
            self.marks.compare_clocks()
            if reason:
                marks.mark_open(self.marks)
            marks.close_window()
            self._backend.stop()
        reason = self._why_incomplete(reason)
        self._write_own(stop_ns, reason, metadata)
        return reason

    def _why_incomplete(self, reason: str) -> str:
        asked, first, last = self.request.steps, self.marks.first_step, self.marks.last_step
        if asked is None:
            return reason
        if (first, last) == asked:
            return ""
        ran = "no step ran" if first is None else f"steps {first} to {last} ran"
        return f"{ran} of {asked[0]} to {asked[1]}" + (f": {reason}" if reason else "")

    def _write_own(self, stop_ns: int, reason: str, metadata: Mapping[str, object]) -> None:
        records, names = mark_records(self.marks)
        self.dropped = self.marks.dropped
        described = {
            "rank": self._rank,
            "target": self._backend.kind,
            "mode": framework.mode(),
            "versions": {
                "instrument": __version__, "mindspore": framework.version(), "python": platform.python_version(),
            },
            "host": platform.node(),
            "pid": os.getpid(),
            "start_ns": self.start_ns,
            "start_monotonic_ns": self.start_monotonic_ns,
            "stop_ns": stop_ns,
            "clock_changes": [change._asdict() for change in self.marks.clock_changes],
            "step_source": self.marks.source,
            "first_step": self.marks.first_step,
            "last_step": self.marks.last_step,
            "requested": self.request.steps,
            "requested_epochs": self.request.epochs,
            "complete": not reason,
            "reason": reason,
            "dropped_marks": self.dropped,
            "metadata": metadata,
            **self._backend.facts(),
        }  # fmt: skip
        self._write(f"window.{self._rank}.json", json.dumps(described, ensure_ascii=False, indent=1).encode())
        self._write(f"marks.{self._rank}.bin", records.tobytes())
        self._write(f"names.{self._rank}.json", json.dumps(names).encode())

    def _write(self, name: str, data: bytes) -> None:
        with open(os.path.join(self.directory, OWN_PREFIX + name), "wb") as file:
            file.write(data)

    def remove(self) -> None:
        """Delete the raw files."""
        shutil.rmtree(self.directory)


def mark_records(window: marks.Window) -> tuple[NDArray[np.void], list[str]]:
    """Return the marks of a window that is closed, dtype `MARK` by start, and the names that they use."""
    numbers: dict[str, int] = {}
    rows = [(*row[:4], numbers.setdefault(row.name, len(numbers)), row.kind, (0, 0, 0)) for row in window.rows()]
    parts = [np.array(rows, MARK)]
    parts += [
        _span_records(thread, np.array(ended, np.int64).reshape(-1, 3), numbers) for thread, ended in window.lanes()
    ]
    records = np.concatenate(parts)
    records["start_ns"] += window.offset_ns
    return records[np.argsort(records["start_ns"], kind="stable")], list(numbers)


def _span_records(thread: int, ended: NDArray[np.int64], numbers: dict[str, int]) -> NDArray[np.void]:
    start_ns, duration_ns, codes = ended.T
    used, places = np.unique(codes, return_inverse=True)
    names = [numbers.setdefault(marks.name_of(code), len(numbers)) for code in used.tolist()]
    records = np.zeros(len(ended), MARK)
    records["start_ns"], records["duration_ns"] = start_ns, duration_ns
    records["thread"], records["number"] = thread, -1
    records["name"] = np.array(names, np.uint32)[places] if len(used) else 0
    records["kind"] = codes >> marks.KIND_SHIFT
    return records


def _make_directory(output_path: str, rank: int) -> str:
    """Make a new directory for raw files, whose name no earlier window of this process had."""
    os.makedirs(output_path, exist_ok=True)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    while True:
        path = os.path.join(output_path, f"profile_raw_{stamp}_{rank}_{next(_numbers)}")
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
