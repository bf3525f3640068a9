"""Files of executions, `<operator>;<kind>;<start ns>,<duration>[,<thread>] <start ns>,<duration>[,<thread>] ...`.

One line an operator, with all of its executions: lines may have hundreds of megabytes. They are taken in pieces, and
the pieces of many operators are converted together. What is regular is converted at once; in a piece with anything odd
each execution is looked at for itself, so that only the odd ones are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import EXECUTION, MISSING, Integers, Rows
from instrument.trace.text import CUT_LINE, LIMIT, Buffer, Index, Losses, decode, is_cut, scaled, spans_of_lines

#: Bytes of a line that are taken at a time.
PIECE_BYTES = 1 << 20
#: Executions that are converted at a time.
_BATCH = 1 << 16
_LONGEST_NAME = 1 << 16
#: The name may hold anything, a semicolon too.
_HEAD = re.compile(rb"([^\n]*?);(?:Host)?(?:Cpu|Gpu)Ops;")
_EXECUTION = re.compile(rb"(\d{1,19}),([^,]{1,64})(?:,(-?\d{1,18}))?")
#: A float64 times a factor is exact to the nanosecond for numbers with this many characters at most.
_EXACT_CHARACTERS = 15

Columns = tuple[Integers, Integers, Integers]


def executions(data: Buffer, losses: Losses, unit_ns: int) -> tuple[list[str], Rows]:
    """The full names of the operators, and their executions by start, as `EXECUTION`; durations are in `unit_ns`.

    Both `task` and `step` are missing, `stream` is the thread. Of a file that breaks off the last execution is left
    out, as its duration may have had more digits, and the cut is counted: what stood behind it is not known.
    """
    names = Index()
    batch = _Batch(losses, unit_ns)
    for start, end in spans_of_lines(data):
        head = _HEAD.match(data, start, min(end, start + _LONGEST_NAME))
        if head is None:
            losses.add("bytes of lines that hold no executions", _content(data, start, end))
            continue
        operator = names(decode(head.group(1)))
        for piece in _pieces(data, head.end(), end, losses):
            batch.add(operator, piece)
    losses.add(CUT_LINE, is_cut(data))
    result = batch.result()
    return names.names, result[np.argsort(result["start_ns"], kind="stable")]


def _content(data: Buffer, start: int, end: int) -> int:
    """Bytes of a line without the blanks around it."""
    return len(bytes(data[start:end]).strip())


def _pieces(data: Buffer, start: int, end: int, losses: Losses) -> Iterator[bytes]:
    """The bytes from `start` to `end` in pieces that break between executions."""
    while start < end:
        stop = min(start + PIECE_BYTES, end)
        if stop < end or (end == len(data) and is_cut(data)):
            blank = _last_blank(data, start, stop)
            if blank <= start:
                losses.add("bytes of executions that are cut off or too long", stop - start)
            elif stop == end:
                losses.add("bytes of executions that are cut off or too long", end - blank)
                yield bytes(data[start:blank])
                return
            else:
                stop = blank
                yield bytes(data[start:stop])
        else:
            yield bytes(data[start:stop])
        start = stop


def _last_blank(data: Buffer, start: int, stop: int) -> int:
    """Return where the last blank between `start` and `stop` ends; `start` without one."""
    piece = bytes(data[start:stop])
    return start + 1 + max(piece.rfind(blank) for blank in (b" ", b"\t", b"\r", b"\n"))


class _Batch:
    """Executions as text of several operators, converted whenever there are enough of them."""

    def __init__(self, losses: Losses, unit_ns: int) -> None:
        self._losses, self._unit_ns = losses, unit_ns
        self._items: list[bytes] = []
        self._operators: list[int] = []
        self._counts: list[int] = []
        self._done: list[Rows] = []

    def add(self, operator: int, piece: bytes) -> None:
        items = piece.split()
        self._items += items
        self._operators.append(operator)
        self._counts.append(len(items))
        if len(self._items) >= _BATCH:
            self._convert()

    def result(self) -> Rows:
        self._convert()
        return np.concatenate([np.empty(0, EXECUTION), *self._done])

    def _convert(self) -> None:
        operators = np.repeat(np.array(self._operators, np.int32), self._counts)
        columns = _regular(self._items, self._unit_ns)
        if columns is None:
            columns, kept = _one_by_one(self._items, self._unit_ns)
            self._losses.add("executions that cannot be read", len(operators) - len(kept))
            operators = operators[kept]
        self._done.append(_as_executions(operators, *columns))
        self._items, self._operators, self._counts = [], [], []


def _as_executions(operators: NDArray[np.int32], start: Integers, duration: Integers, thread: Integers) -> Rows:
    result = np.empty(len(operators), EXECUTION)
    result["start_ns"], result["duration_ns"], result["operator"], result["stream"] = start, duration, operators, thread
    result["task"] = result["step"] = MISSING
    return result


def _regular(items: list[bytes], unit_ns: int) -> Columns | None:
    """The columns of executions that are all alike; None where one of them is not as it should be."""
    try:
        starts, durations, *threads = zip(*(item.split(b",") for item in items), strict=True)
        if len(threads) > 1 or len(max(durations, key=len)) > _EXACT_CHARACTERS or any(b"_" in item for item in items):
            return None
        start = np.fromiter(map(int, starts), np.int64, len(items))
        duration = np.fromiter(map(float, durations), np.float64, len(items)) * unit_ns
        thread = np.fromiter(map(int, threads[0]), np.int64, len(items)) if threads else np.full_like(start, MISSING)
    except (ValueError, OverflowError):
        return None
    if not ((np.abs(duration) < LIMIT) & (start >= 0) & (start < LIMIT)).all():
        return None
    return start, np.rint(duration).astype(np.int64), thread


def _one_by_one(items: list[bytes], unit_ns: int) -> tuple[Columns, NDArray[np.intp]]:
    """The columns of those executions that can be read, and which they are."""
    rows, kept = [], []
    for place, item in enumerate(items):
        match = _EXECUTION.fullmatch(item)
        duration = scaled(match[2].decode("ascii", "replace"), unit_ns) if match else None
        if match is None or duration is None or int(match[1]) >= LIMIT:
            continue
        rows.append((int(match[1]), duration, int(match[3]) if match[3] else MISSING))
        kept.append(place)
    table = np.array(rows, np.int64).reshape(-1, 3)
    return (table[:, 0], table[:, 1], table[:, 2]), np.array(kept, np.intp)
