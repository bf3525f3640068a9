"""Files of operators on the CPU, as MindSpore 2.10 writes them; `gpu_framework` has the form of `cpu_framework`.

Executions come from the timestamps; the shapes of their inputs from the framework's file, which has one line for each
execution in the same order, but with the short name only, and in PyNative mode often with no name at all.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.trace import csvtext, timestamps
from instrument.trace.events import CPU, MEMORY, MISSING, TOTAL, Integers, Operator, Problem, Rows
from instrument.trace.text import CUT_LINE, Buffer, Index, Losses, decode, is_cut, lines

MS, US = 10**6, 10**3
_UNKNOWN = -2
_INSTANCE = re.compile(r"-op\d+$")
_INPUT = re.compile(r"^input_\d+:")
#: What a file says of an input; others are damaged.
_SHAPE = re.compile(r"input_\d+:(?:\[[-\d, ]*\]|[A-Za-z]*Shape(?:\([^;]*\))?)", re.ASCII)


class Executions(NamedTuple):
    """Operators and their executions (`EXECUTION`, by start)."""

    operators: list[Operator]
    executions: Rows
    problems: list[Problem]


class Totals(NamedTuple):
    """Operators, and what the source sums up for each (`TOTAL`)."""

    operators: list[Operator]
    totals: Rows
    problems: list[Problem]


class Shapes(NamedTuple):
    """The lines of a framework file: `rows[i]` is the row of the i-th line in `kinds`, of (short name, shapes).

    `lines` is how many lines there are, those that cannot be read among them.
    """

    file: str
    kinds: list[tuple[str, str]]
    rows: NDArray[np.int32]
    problems: list[Problem]
    lines: int


class Memory(NamedTuple):
    """Samples of memory as `MEMORY`."""

    samples: Rows
    problems: list[Problem]


def operator_of(full_name: str, side: str) -> Operator:
    """`Operator("Default/fc/MatMul-op0", "MatMul-op0", "MatMul", side)` for the first of these."""
    name = full_name.rpartition("/")[2]
    return Operator(full_name, name, _INSTANCE.sub("", name), side)


def executions(data: Buffer, file: str) -> Executions:
    """`cpu_op_execute_timestamp_<rank>.txt`: starts in ns, durations in ms with six digits."""
    losses = Losses(file)
    names, found = timestamps.executions(data, losses, MS)
    return Executions([operator_of(name, CPU) for name in names], found, losses.problems())


def framework(data: Buffer, file: str) -> Shapes:
    """`cpu_framework_<rank>.txt`, `<type>;<name>;<graph>;input_1:[2, 2];input_2:NoShape;`, one line an execution."""
    losses = Losses(file)
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
    return Shapes(file, [kind or ("", "") for kind in kinds], kept, losses.problems(), len(rows))


def _kind(line: str) -> tuple[str, str] | None:
    """Short name and shapes of a line; both are empty in a line without a name."""
    parts = line.strip().split(";")
    if len(parts) < 3 or not all(_SHAPE.fullmatch(part) for part in parts[3:] if part):
        return None
    return parts[1], ";".join(_INPUT.sub("", part) for part in parts[3:] if part)


def with_shapes(found: Executions, shapes: Shapes, has_all: bool = True) -> Executions:
    """`found` with the shapes of its inputs; an operator that met several is several operators.

    Lines and executions of one short name belong together in their order. Where their numbers differ and the lines do
    too, nothing says which is whose: those executions stay without shapes and are counted. `has_all` says that a whole
    file has a line for each execution, so that those without one are a loss.
    """
    problems = found.problems + shapes.problems
    if not len(shapes.rows) or not len(found.executions):
        return Executions(found.operators, found.executions, problems)
    short = Index()
    of_operator = np.array([short(operator.name) for operator in found.operators], np.int64)
    of_kind = np.array([short(name) for name, _ in shapes.kinds], np.int64)
    kinds = _kinds_of(of_operator[found.executions["operator"]], of_kind[shapes.rows], shapes.rows, len(short))
    lacking = int((kinds == MISSING).sum()) if has_all and shapes.lines < len(found.executions) else 0
    if lacking:  # in PyNative mode lines have no names, but none lacks
        problems.append(Problem(shapes.file, "executions that it has no line for: their shapes are not known", lacking))
    if unknown := int((kinds == _UNKNOWN).sum()):
        problems.append(Problem(shapes.file, "executions whose shapes are not certain", unknown))
    return _split(found, shapes.kinds, np.maximum(kinds, MISSING), problems)


def _kinds_of(executed: Integers, written: Integers, rows: NDArray[np.int32], names: int) -> Integers:
    """For each execution the row of its shapes; `MISSING` without any line of its name, `_UNKNOWN` where not certain.

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


def _split(found: Executions, kinds: Sequence[tuple[str, str]], kind: Integers, problems: list[Problem]) -> Executions:
    """`found` with an operator for each pair of operator and shapes."""
    texts = Index()
    text_of_kind = np.array([*(texts(shapes) for _, shapes in kinds), texts("")], np.int64)
    pairs = found.executions["operator"].astype(np.int64) * len(texts) + text_of_kind[kind]
    distinct, first, rows = np.unique(pairs, return_index=True, return_inverse=True)
    order = np.lexsort((first, distinct // len(texts)))  # operators as before, shapes as first met
    names = texts.names
    operators = [
        found.operators[pair // len(texts)]._replace(shapes=names[pair % len(texts)])
        for pair in distinct[order].tolist()
    ]
    executions = found.executions.copy()
    executions["operator"] = np.argsort(order)[rows.reshape(-1)]
    return Executions(operators, executions, problems)


_DETAIL = {
    "type": ("op_type",),
    "name": ("op_name",),
    "full_name": ("full_op_name", "op_full_name"),
    "count": ("op_occurrences", "type_occurrences"),
    "total_ms": ("op_total_time(ms)", "total_compute_time"),
    "total_us": ("op_total_time(us)", "total_time(us)"),
}


def totals(data: Buffer, file: str, side: str = CPU) -> Totals:
    """`<side>_op_detail_info_<rank>.csv` and `<side>_op_type_info_<rank>.csv`; the latter has types without names."""
    losses = Losses(file)
    operators: list[Operator] = []
    found = [np.empty(0, TOTAL)]
    for block in csvtext.blocks(data, losses, _DETAIL, ("type", "count")):
        ns, has_time = block.numbers("total_ms", MS)
        us, has_us = block.numbers("total_us", US)
        count, has_count = block.numbers("count")
        rows = np.zeros(len(block), TOTAL)
        rows["operator"] = np.arange(len(operators), len(operators) + len(block))
        rows["count"], rows["total_ns"] = count, np.where(has_us, us, ns)
        rows["min_ns"] = rows["max_ns"] = MISSING
        cells = zip(block.text("full_name"), block.text("name"), block.text("type"), strict=True)
        operators += [Operator(full_name, name, kind, side) for full_name, name, kind in cells]
        found.append(rows[has_count & (has_time | has_us)])
    return Totals(operators, np.concatenate(found), losses.problems())


_MEMORY = {
    "time": ("Timestamp(ns)",),
    "allocated": ("Total Allocated(Byte)",),
    "reserved": ("Total Reserved(Byte)",),
    "active": ("Total Active(Byte)",),
}


def memory(data: Buffer, file: str) -> Memory:
    """`cpu_ms_memory_record_<rank>.txt`: times in ns since the epoch, sizes in bytes."""
    losses = Losses(file)
    found = [np.empty(0, MEMORY)]
    for block in csvtext.blocks(data, losses, _MEMORY, ("time",)):
        time, has_time = block.numbers("time")
        rows = np.empty(len(block), MEMORY)
        rows["time_ns"] = time
        for name in ("allocated", "reserved", "active"):
            rows[f"{name}_bytes"] = block.numbers(name)[0]
        found.append(rows[has_time])
    return Memory(np.concatenate(found), losses.problems())
