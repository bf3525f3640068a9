"""Files of operators on the CPU, as MindSpore 2.10 writes them; those of the GPU have the same forms.

Executions come from the timestamps, `<operator>;<kind>;<start ns>,<duration>[,<thread>] <start ns>,<duration> ...`: one
line an operator, with all of its executions, so lines may have hundreds of megabytes. They are taken in pieces, and the
pieces of many operators are converted together. What is regular is converted at once; in a piece with anything odd each
execution is looked at for itself, so that only the odd ones are lost.

The shapes of inputs come from the framework's file, which has one line for each execution in the same order, but with
the short name only, and in PyNative mode often with no name at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.trace.events import (
    CPU,
    EXECUTION,
    MEMORY,
    MISSING,
    TOTAL,
    Integers,
    Operator,
    OperatorRows,
    Rows,
    by_start,
)
from instrument.trace.text import (
    CUT_LINE,
    LIMIT,
    Buffer,
    Column,
    Index,
    Losses,
    csv_rows,
    decode,
    is_cut,
    lines,
    scaled,
    spans_of_lines,
)

MS, US = 10**6, 10**3
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
_CUT_EXECUTIONS = "bytes of executions that are cut off or too long"
_UNKNOWN = -2
_INSTANCE = re.compile(r"-op\d+$")
_INPUT = re.compile(r"^input_\d+:")
#: What a file says of an input; others are damaged.
_SHAPE = re.compile(r"input_\d+:(?:\[[-\d, ]*\]|[A-Za-z]*Shape(?:\([^;]*\))?)", re.ASCII)


def operator_of(full_name: str, side: str) -> Operator:
    """Return `Operator("Default/fc/MatMul-op0", "MatMul-op0", "MatMul", side)` for the first of these."""
    name = full_name.rpartition("/")[2]
    return Operator(full_name, name, _INSTANCE.sub("", name), side)


# ---------------------------------------------------------------- executions


def executions(data: Buffer, losses: Losses, unit_ns: int = MS, side: str = CPU) -> OperatorRows:
    """Return the executions of `cpu_op_execute_timestamp_<rank>.txt`: starts in ns, durations in `unit_ns`.

    Both `task` and `step` are missing, `stream` is the thread. Of a file that breaks off the last execution is left
    out, as its duration may have had more digits, and the cut is counted: what stood behind it is not known.
    """
    names = Index[str]()
    batch = _Batch(losses, unit_ns)
    for start, end in spans_of_lines(data):
        head = _HEAD.match(data, start, min(end, start + _LONGEST_NAME))
        if head is None:
            losses.add("bytes of lines that hold no executions", len(bytes(data[start:end]).strip()))
            continue
        operator = names(decode(head.group(1)))
        for piece in _pieces(data, head.end(), end, losses):
            batch.add(operator, piece)
    losses.add(CUT_LINE, is_cut(data))
    return OperatorRows([operator_of(name, side) for name in names.names], by_start(batch.result()))


def _pieces(data: Buffer, start: int, end: int, losses: Losses) -> Iterator[bytes]:
    """Yield the bytes from `start` to `end` in pieces that break between executions."""
    may_be_cut = end == len(data) and is_cut(data)
    while start < end:
        stop = min(start + PIECE_BYTES, end)
        piece = bytes(data[start:stop])
        if stop < end or may_be_cut:
            whole = 1 + max(piece.rfind(blank) for blank in (b" ", b"\t", b"\r", b"\n"))
            if not whole or stop == end:
                losses.add(_CUT_EXECUTIONS, len(piece) - whole)
            else:
                stop = start + whole
            piece = piece[:whole]
        if piece:
            yield piece
        start = stop


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
        rows = np.empty(len(self._items), EXECUTION)
        rows["task"] = rows["step"] = MISSING
        rows["operator"] = np.repeat(np.array(self._operators, np.int32), self._counts)
        columns = _regular(self._items, self._unit_ns)
        if columns is None:
            columns, kept = _one_by_one(self._items, self._unit_ns)
            self._losses.add("executions that cannot be read", len(rows) - len(kept))
            rows = rows[kept]
        rows["start_ns"], rows["duration_ns"], rows["stream"] = columns
        self._done.append(rows)
        self._items, self._operators, self._counts = [], [], []


def _regular(items: list[bytes], unit_ns: int) -> tuple[Integers, ...] | None:
    """Return the columns of executions that are all alike; None where one of them is not as it should be."""
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


def _one_by_one(items: list[bytes], unit_ns: int) -> tuple[tuple[Integers, ...], NDArray[np.intp]]:
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


# ---------------------------------------------------------------- shapes of inputs


class Shapes(NamedTuple):
    """The lines of a framework file: `rows[i]` is the row of the i-th line in `kinds`, of (short name, shapes).

    `lines` is how many lines there are, those that cannot be read among them.
    """

    kinds: list[tuple[str, str]]
    rows: NDArray[np.int32]
    lines: int


def framework(data: Buffer, losses: Losses) -> Shapes:
    """Read `cpu_framework_<rank>.txt`, `<type>;<name>;<graph>;input_1:[2, 2];input_2:NoShape;`, a line an execution."""
    distinct: dict[bytes, int] = {}
    # Few lines differ: each is looked up, and only new ones are taken apart.
    rows = np.fromiter((distinct.setdefault(line, len(distinct)) for line in lines(data)), np.int32)
    if is_cut(data):
        losses.add(CUT_LINE)
        rows = rows[:-1]
    kinds = [_kind(decode(line)) for line in distinct]
    is_line = np.array([kind is not None for kind in kinds], np.bool_)
    losses.add("lines of another form", int((~is_line[rows]).sum()) if len(kinds) else 0)
    kept = rows[is_line[rows]] if len(kinds) else rows
    return Shapes([kind or ("", "") for kind in kinds], kept, len(rows))


def _kind(line: str) -> tuple[str, str] | None:
    """Return short name and shapes of a line; both are empty in a line without a name."""
    parts = line.strip().split(";")
    if len(parts) < 3 or not all(_SHAPE.fullmatch(part) for part in parts[3:] if part):
        return None
    return parts[1], ";".join(_INPUT.sub("", part) for part in parts[3:] if part)


def with_shapes(executions: OperatorRows, shapes: Shapes, losses: Losses, has_all: bool = True) -> OperatorRows:
    """Return the executions with the shapes of their inputs; an operator that met several is several operators.

    Lines and executions of one short name belong together in their order. Where their numbers differ and the lines do
    too, nothing says which is whose: those executions stay without shapes and are counted. `has_all` says that a whole
    file has a line for each execution, so that those without one are a loss.
    """
    if not len(shapes.rows) or not len(executions.rows):
        return executions
    short = Index[str]()
    of_operator = np.array([short(operator.name) for operator in executions.operators], np.int64)
    of_kind = np.array([short(name) for name, _ in shapes.kinds], np.int64)
    kinds = _kinds_of(of_operator[executions.rows["operator"]], of_kind[shapes.rows], shapes.rows, len(short))
    if has_all and shapes.lines < len(executions.rows):  # in PyNative mode lines have no names, but none lacks
        lacking = int((kinds == MISSING).sum())
        losses.add("executions that it has no line for: their shapes are not known", lacking)
    losses.add("executions whose shapes are not certain", int((kinds == _UNKNOWN).sum()))
    return _split(executions, shapes.kinds, np.maximum(kinds, MISSING))


def _kinds_of(executed: Integers, written: Integers, rows: NDArray[np.int32], names: int) -> Integers:
    """Return the row of the shapes of each execution: `MISSING` without a line of its name, `_UNKNOWN` if uncertain.

    `executed` and `written` are the short names of the executions and of the lines, as numbers below `names`.
    """
    result = np.full(len(executed), MISSING, np.int64)
    by_name, lines_by_name = np.argsort(executed, kind="stable"), np.argsort(written, kind="stable")
    counts, line_counts = np.bincount(executed, minlength=names), np.bincount(written, minlength=names)
    ends, line_ends = np.cumsum(counts), np.cumsum(line_counts)
    for name in np.flatnonzero((counts > 0) & (line_counts > 0)):
        mine = by_name[ends[name] - counts[name] : ends[name]]
        theirs = rows[lines_by_name[line_ends[name] - line_counts[name] : line_ends[name]]]
        if len(mine) == len(theirs):
            result[mine] = theirs
        else:
            result[mine] = theirs[0] if (theirs == theirs[0]).all() else _UNKNOWN
    return result


def _split(executions: OperatorRows, kinds: Sequence[tuple[str, str]], kind: Integers) -> OperatorRows:
    """Return the executions with an operator for each pair of operator and shapes."""
    texts = Index[str]()
    text_of_kind = np.array([*(texts(shapes) for _, shapes in kinds), texts("")], np.int64)
    pairs = executions.rows["operator"].astype(np.int64) * len(texts) + text_of_kind[kind]
    distinct, first, rows = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.lexsort((first, distinct // len(texts)))  # operators as before, shapes as first met
    names = texts.names
    operators = [
        executions.operators[pair // len(texts)]._replace(shapes=names[pair % len(texts)])
        for pair in distinct[order].tolist()
    ]
    rows_of_kind = executions.rows.copy()
    rows_of_kind["operator"] = np.argsort(order)[rows.reshape(-1)]
    return OperatorRows(operators, rows_of_kind)


# ---------------------------------------------------------------- tables

_DETAIL = {
    "type": Column(("op_type",), is_required=True),
    "name": Column(("op_name",)),
    "full_name": Column(("full_op_name", "op_full_name")),
    "count": Column(("op_occurrences", "type_occurrences"), is_required=True),
    "total_ms": Column(("op_total_time(ms)", "total_compute_time"), MS),
    "total_us": Column(("op_total_time(us)", "total_time(us)"), US),
}
_MEMORY = {
    "time_ns": Column(("Timestamp(ns)",), is_required=True),
    "allocated_bytes": Column(("Total Allocated(Byte)",)),
    "reserved_bytes": Column(("Total Reserved(Byte)",)),
    "active_bytes": Column(("Total Active(Byte)",)),
}


def totals(data: Buffer, losses: Losses, side: str = CPU) -> OperatorRows:
    """Read `<side>_op_detail_info_<rank>.csv` or `<side>_op_type_info_<rank>.csv`, which has types without names."""
    operators: list[Operator] = []
    blocks = [np.empty(0, TOTAL)]
    for block in csv_rows(data, losses, _DETAIL):
        ns, has_time = block.numbers("total_ms")
        us, has_us = block.numbers("total_us")
        rows, has_count = block.array(TOTAL)
        rows["operator"] = np.arange(len(operators), len(operators) + len(block))
        rows["total_ns"] = np.where(has_us, us, ns)
        cells = zip(block.text("full_name"), block.text("name"), block.text("type"), strict=True)
        operators += [Operator(full_name, name, kind, side) for full_name, name, kind in cells]
        blocks.append(rows[has_count & (has_time | has_us)])
    return OperatorRows(operators, np.concatenate(blocks))


def memory(data: Buffer, losses: Losses) -> Rows:
    """Return the samples (dtype MEMORY) of `cpu_ms_memory_record_<rank>.txt`."""
    blocks = [np.empty(0, MEMORY)]
    for block in csv_rows(data, losses, _MEMORY):
        rows, usable = block.array(MEMORY)
        blocks.append(rows[usable])
    return np.concatenate(blocks)
