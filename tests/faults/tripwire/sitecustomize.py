"""Has a process end by SIGKILL between two lines of the code that writes: moments that no clock would hit.

A Python that finds this module at its start arms it where `INSTRUMENT_TEST_TRIPWIRE` says so: a JSON list of the module
whose process is meant, how many lines it lives at least and at most, how many deaths there are to be, their book, and a
list of the places where somebody died already: another place is preferred.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import signal
import sys
import time
from types import FrameType
from typing import Any

_FOLDERS = tuple(os.sep + os.path.join("instrument", room) + os.sep for room in ("write", "ringfile"))
_FILE = os.sep + os.path.join("instrument", "eventfile", "writer.py")
#: Between their lines nothing changes that another process sees.
_PURE = ("message.py", "memory.py", "record.py", "unpack.py", "header.py", "tag_names.py")
#: So long is a place waited for where nobody died.
_PATIENCE_LINES = 20_000


class Tripwire:
    """Counts lines that are about to run."""

    def __init__(self, least_lines: int, most_lines: int, book: str, places: str) -> None:
        # Every other one dies as soon as it comes to a new place. The lives of the others are spread evenly over the
        # magnitudes: many die early, some late.
        self._left = int(least_lines * (most_lines / least_lines) ** random.random()) * random.randrange(2)
        self._book, self._places = book, places
        self._known = set(lines(places))

    def on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        name = frame.f_code.co_filename
        is_ours = (any(folder in name for folder in _FOLDERS) or name.endswith(_FILE)) and os.path.basename(
            name
        ) not in _PURE
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED  # neither a module nor the body of a class
        return self._on_line if is_ours and is_function else None

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        self._left -= 1
        if self._left <= 0:
            place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
            if place not in self._known or self._left < -_PATIENCE_LINES:
                self._die(place)
        return self._on_line

    def _die(self, place: str) -> None:
        append(self._places, f"{place}\n")
        append(self._book, f"{time.monotonic_ns()} {place}\n")
        os.kill(os.getpid(), signal.SIGKILL)


def append(path: str, line: str) -> None:
    with open(path, "a") as file:
        file.write(line)


def lines(path: str) -> list[str]:
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().splitlines()


def arm() -> None:
    module, least_lines, most_lines, deaths, book, places = json.loads(os.environ["INSTRUMENT_TEST_TRIPWIRE"])
    if module in sys.orig_argv and len(lines(book)) < deaths:
        sys.settrace(Tripwire(least_lines, most_lines, book, places).on_call)


if "INSTRUMENT_TEST_TRIPWIRE" in os.environ:
    arm()
