"""Host-side ranges: `span` for users, and the marks of a window as the bytes that stand in its trace.

The marks file has 40 bytes a mark, as `RECORD` says, in the order of their starts; `name` is the place in the list of
names beside it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from instrument import marks
from instrument.marks import Span as Span
from instrument.marks import span as span

#: Times in nanoseconds since the epoch; a duration of -1 had not ended; `number` is that of a step or epoch, else -1;
#: `kind` is 0 for a user's span, 1 for a step, 2 for an epoch, 3 for a callback of ours.
RECORD = np.dtype(
    [
        ("start_ns", "<i8"), ("duration_ns", "<i8"), ("thread", "<i8"), ("number", "<i8"), ("name", "<u4"),
        ("kind", "u1"), ("reserved", "u1", (3,)),
    ]
)  # fmt: skip


def records(window: marks.Window) -> tuple[NDArray[np.void], list[str]]:
    """The marks of a window that is closed, dtype `RECORD`, and the names that they use."""
    numbers: dict[str, int] = {}
    rows = [(*row[:4], numbers.setdefault(row.name, len(numbers)), row.kind, (0, 0, 0)) for row in window.rows()]
    parts = [np.array(rows, RECORD)]
    parts += [_spans(thread, np.array(ended, np.int64).reshape(-1, 3), numbers) for thread, ended in window.lanes()]
    found = np.concatenate(parts)
    found["start_ns"] += window.offset_ns
    return found[np.argsort(found["start_ns"], kind="stable")], list(numbers)


def _spans(thread: int, ended: NDArray[np.int64], numbers: dict[str, int]) -> NDArray[np.void]:
    start_ns, duration_ns, codes = ended.T
    used, places = np.unique(codes, return_inverse=True)
    names = [numbers.setdefault(marks.name_of(code), len(numbers)) for code in used.tolist()]
    found = np.zeros(len(ended), RECORD)
    found["start_ns"], found["duration_ns"], found["thread"], found["number"] = start_ns, duration_ns, thread, -1
    found["name"] = np.array(names, np.uint32)[places] if len(used) else 0
    found["kind"] = codes >> marks.KIND_SHIFT
    return found
