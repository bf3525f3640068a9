"""The data queues of an Ascend device: what the host put in (TDT, DP) and how the device took it out (AICPUMI).

Times are in us, on the axis of the device's counter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from instrument.trace.events import Rows
from instrument.trace.records import (
    UNKNOWN_LINES,
    UNKNOWN_MESSAGES,
    integer,
    is_binary,
    lines,
    messages,
    with_magic,
)
from instrument.trace.text import Buffer, Index, Losses, decode

#: One element of the queue between host and device: when, which one (from 1), and how many the queue held then.
#: `source` is its row in `Pushes.names`.
PUSH = np.dtype([("time_us", "i8"), ("index", "i8"), ("size", "i8"), ("source", "i4")])
#: The device fetches an element: how long it took, and how many the queue held. `node` is its row in `Fetches.names`.
FETCH_US = np.dtype([("start_us", "i8"), ("end_us", "i8"), ("size", "i8"), ("node", "i4")])

#: A record of the binary form of DP.
RECORD = np.dtype(
    [
        ("magic", "<u2"), ("kind", "<u2"), ("reserved", "<u4"), ("time_us", "<i8"), ("action", "S16"),
        ("source", "S64"), ("index", "<i8"), ("size", "<i8"), ("reserved2", "V16"),
    ]
)  # fmt: skip

_PUSH = re.compile(
    r"\[(\d+)\]\s*(?:Enqueue data to dp|Last queue dequeue),\s*source:(.*),\s*index:\s*(\d+),\s*size:\s*(\d+)"
)
_OTHER_ACTION = re.compile(r"\[\d+\].*,\s*source:.*")
_FETCH = re.compile(
    r"Node:(.*?)(?:,\s*queue size:\s*(\d+))?,\s*Run start:\s*(\d+),\s*Run end:\s*(\d+)(?:,\s*queue size:\s*(\d+))?"
)
_FETCH_LINE = re.compile(r"(\S+) +(\d+) +(\d+) +(\d+)")


@dataclass(frozen=True, eq=False)
class Pushes:
    """`elements` (dtype PUSH) in file order, and the names of their sources."""

    elements: Rows
    names: Sequence[str]


@dataclass(frozen=True, eq=False)
class Fetches:
    """`fetches` (dtype FETCH_US) in file order, and the names of the operators that fetch."""

    fetches: Rows
    names: Sequence[str]


def pushes(data: Buffer, losses: Losses) -> Pushes:
    """A TDT file, or a DP file of either form."""
    return _binary_pushes(data, losses) if is_binary(data) else _text_pushes(data, losses)


def _text_pushes(data: Buffer, losses: Losses) -> Pushes:
    names = Index()

    def row(message: str) -> tuple[int, ...] | None:
        match = _PUSH.fullmatch(message)
        numbers = _integers(match[1], match[3], match[4]) if match else None
        return (*numbers, names(match[2].strip())) if match and numbers else None

    found = []
    for message in messages(data, losses):
        if (push := row(message)) is not None:
            found.append(push)
        else:
            is_other = _OTHER_ACTION.fullmatch(message) is not None and not _PUSH.fullmatch(message)
            losses.add("messages of other actions" if is_other else UNKNOWN_MESSAGES)
    return Pushes(np.array(found, PUSH), names.names)


def _binary_pushes(data: Buffer, losses: Losses) -> Pushes:
    found = with_magic(data, RECORD, losses)
    is_time = found["time_us"] >= 0
    losses.add("records with a time that is none", len(found) - int(np.count_nonzero(is_time)))
    found = found[is_time]
    sources, source = np.unique(found["source"], return_inverse=True)
    elements = np.empty(len(found), PUSH)
    for name in ("time_us", "index", "size"):
        elements[name] = found[name]
    elements["source"] = source.reshape(-1)
    return Pushes(elements, [decode(bytes(name).split(b"\0")[0]) for name in sources])


def fetches(data: Buffer, losses: Losses) -> Fetches:
    """An AICPUMI file; the size of the queue stands before the times or behind them."""
    names = Index()

    def row(message: str) -> tuple[int, ...] | None:
        match = _FETCH.fullmatch(message)
        sizes = [text for text in (match[2], match[5]) if text is not None] if match else []
        numbers = _integers(match[3], match[4], sizes[0]) if match and len(sizes) == 1 else None
        return (*numbers, names(match[1].strip())) if match and numbers else None

    return _fetches(messages(data, losses), row, names, UNKNOWN_MESSAGES, losses)


def fetch_table(data: Buffer, losses: Losses) -> Fetches:
    """A `minddata_aicpu_<device>.txt`: a line for each fetch with its operator, start, end and queue size."""
    names = Index()

    def row(line: str) -> tuple[int, ...] | None:
        match = _FETCH_LINE.fullmatch(line)
        numbers = _integers(match[2], match[3], match[4]) if match else None
        return (*numbers, names(match[1])) if match and numbers else None

    return _fetches(lines(data, losses), row, names, UNKNOWN_LINES, losses)


def _fetches(
    texts: Iterator[str], row: Callable[[str], tuple[int, ...] | None], names: Index, unknown: str, losses: Losses
) -> Fetches:
    rows = [row(text) for text in texts]
    found = [one for one in rows if one is not None]
    losses.add(unknown, len(rows) - len(found))
    return Fetches(np.array(found, FETCH_US), names.names)


def _integers(*texts: str) -> tuple[int, ...] | None:
    values = [integer(text) for text in texts]
    return None if None in values else tuple(value for value in values if value is not None)
