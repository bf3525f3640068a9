"""One window: a directory for its raw files, the marks beside them, and what was asked for and what ran.

A window that is opened is closed, whatever ends it; a window that did not see all of what was asked for says why.
"""

from __future__ import annotations

import itertools
import json
import os
import platform
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from instrument import framework, marks
from instrument._version import __version__
from instrument.profiler import spans
from instrument.profiler.archive import OWN_PREFIX
from instrument.profiler.backends.base import Backend

_numbers = itertools.count()


@dataclass(frozen=True)
class Request:
    """What a window is for: `steps` or `epochs`, the first and the last one; both None where nobody said."""

    steps: tuple[int, int] | None = None
    epochs: tuple[int, int] | None = None

    def __str__(self) -> str:
        what, asked = ("epochs", self.epochs) if self.epochs else ("steps", self.steps)
        return f"{what} {asked[0]} to {asked[1]}" if asked else "until stop()"


class Window:
    """Opened at construction, when the operators that were called before have run.

    Raises:
        Exception: whatever the backend raises; nothing is left behind then.
    """

    def __init__(self, output_path: str, backend: Backend, rank: int, request: Request) -> None:
        self.request = request
        self.directory = _make_directory(output_path, rank)
        self._backend = backend
        self._rank = rank
        #: How many marks did not fit; known when the window is closed.
        self.dropped = 0
        #: What an operator raised that was still running when the window closed.
        self.error: Exception | None = None
        try:
            self.marks = marks.open_window(settle=framework.wait_for_operators)
            backend.start(self.directory)
        except BaseException:
            marks.close_window()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        # The data pipeline's times are of the monotonic clock, too: the same moment on both joins them.
        self.start_monotonic_ns = time.monotonic_ns()
        self.start_ns = self.marks.wall_ns(self.start_monotonic_ns)

    def close(self, reason: str, metadata: Mapping[str, Any]) -> str:
        """End it and write what the window was; `reason` says what cut it short, empty where nothing did.

        Returns why the window is not complete; empty where it is.
        """
        try:
            framework.wait_for_operators()
        except Exception as error:  # noqa: BLE001  the user's; raised again when the window is safe
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

    def _write_own(self, stop_ns: int, reason: str, metadata: Mapping[str, Any]) -> None:
        records, names = spans.records(self.marks)
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


def _make_directory(output_path: str, rank: int) -> str:
    """A new directory for raw files, with a name of its own even where earlier ones are gone."""
    os.makedirs(output_path, exist_ok=True)
    stamp = time.strftime("%Y%m%d_%H%M%S")
    while True:
        path = os.path.join(output_path, f"profile_raw_{stamp}_{rank}_{next(_numbers)}")
        try:
            os.mkdir(path)
        except FileExistsError:
            continue
        return path
