"""What a parsed trace is made of: NumPy structured arrays with units in their names, and tables of names beside them.

All times are integers in nanoseconds on the one axis of the trace (`Capture.clock` says which). What a source does not
tell is `MISSING`, never a guess; what was left out is a `Problem` with its amount, never silent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

#: A structured array, an array of integers, and one that chooses rows.
Rows: TypeAlias = NDArray[np.void]
Integers: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]


#: A time, step or id that the trace does not tell.
MISSING = -1

#: One execution of an operator: `operator` is its row in `Capture.operators`; `stream` the device's stream or the
#: host's thread; `task` the device's task id, `step` the user's step it ran in.
EXECUTION = np.dtype(
    [("start_ns", "i8"), ("duration_ns", "i8"), ("operator", "i4"), ("stream", "i8"), ("task", "i8"), ("step", "i8")]
)
#: One training step: [start_ns, end_ns), forward from `fp_start_ns`, backward until `bp_end_ns`; `model` is the graph.
STEP = np.dtype(
    [
        ("step", "i8"), ("start_ns", "i8"), ("fp_start_ns", "i8"), ("bp_end_ns", "i8"), ("end_ns", "i8"),
        ("model", "i8"),
    ]
)  # fmt: skip
#: One communication inside a step: `name` is its row in `Capture.names`.
REDUCE = np.dtype([("step", "i8"), ("stream", "i8"), ("name", "i4"), ("start_ns", "i8"), ("duration_ns", "i8")])
#: A named range on the host: a user's span, an epoch, a callback; `name` is its row in `Capture.names`.
SPAN = np.dtype(
    [("start_ns", "i8"), ("duration_ns", "i8"), ("name", "i4"), ("kind", "u1"), ("thread", "i8"), ("number", "i8")]
)
SPAN_USER, SPAN_STEP, SPAN_EPOCH, SPAN_CALLBACK = 0, 1, 2, 3
#: What the framework or the driver says that it did on the host; never written by us.
SPAN_FRAMEWORK = 4
#: The memory of the device, or of the host where operators run there.
MEMORY = np.dtype([("time_ns", "i8"), ("allocated_bytes", "i8"), ("reserved_bytes", "i8"), ("active_bytes", "i8")])
#: A batch as the consumer of the data pipeline sees it: when it was there, how long it took in the pipeline and on its
#: way into the device's queue, and what the queue held then.
BATCH = np.dtype(
    [
        ("time_ns", "i8"), ("batch", "i8"), ("pipeline_ns", "i8"), ("push_ns", "i8"), ("total_ns", "i8"),
        ("queue_size", "i8"), ("queue_capacity", "i8"),
    ]
)  # fmt: skip

#: The device takes a batch out of its queue: how long it waited for it, and what the queue held then (0: it was empty).
FETCH = np.dtype([("step", "i8"), ("stream", "i8"), ("start_ns", "i8"), ("duration_ns", "i8"), ("queue_size", "i8")])

#: What a source itself sums up for an operator (a row of `Capture.operators`), where it gives no executions.
TOTAL = np.dtype([("operator", "i4"), ("count", "i8"), ("total_ns", "i8"), ("min_ns", "i8"), ("max_ns", "i8")])
#: What a source itself says about computing and communication at the same time, for one step (-1: all of the capture).
OVERLAP = np.dtype(
    [
        ("step", "i8"), ("computing_ns", "i8"), ("communication_ns", "i8"), ("overlapped_ns", "i8"),
        ("communication_not_overlapped_ns", "i8"), ("free_ns", "i8"), ("stage_ns", "i8"), ("bubble_ns", "i8"),
        ("preparing_ns", "i8"),
    ]
)  # fmt: skip
#: A time of which a timeline says what the device did: `kind` is the place in `OVERLAP_KINDS`.
OVERLAP_EVENT = np.dtype([("start_ns", "i8"), ("duration_ns", "i8"), ("kind", "u1")])
OVERLAP_KINDS = ("computing_ns", "communication_ns", "communication_not_overlapped_ns", "free_ns")
#: A task of the AI CPUs as their own file tells it, beside its execution: from its submission to its end, and how long
#: until it ran.
AI_CPU_TASK = np.dtype(
    [("start_ns", "i8"), ("operator", "i4"), ("step", "i8"), ("total_ns", "i8"), ("dispatch_ns", "i8")]
)
#: A place where the trace itself says that records were lost: the times of the last record before it and of the first
#: one after it.
LOST = np.dtype([("start_ns", "i8"), ("end_ns", "i8")])

AI_CORE, AI_CPU, GPU, CPU, COMMUNICATION = "AI Core", "AI CPU", "GPU", "CPU", "communication"


class Operator(NamedTuple):
    """An operator of the network: `side` is where it runs, `shapes` those of its inputs as the trace has them.

    One that met inputs of several shapes is several operators of the same full name.
    """

    full_name: str
    name: str
    type: str
    side: str
    shapes: str = ""


class OperatorRows(NamedTuple):
    """Operators, and rows (dtype EXECUTION by start, or TOTAL) whose `operator` is one of them."""

    operators: Sequence[Operator]
    rows: Rows


class NamedRows(NamedTuple):
    """Names, and rows whose `name` is one of them."""

    names: Sequence[str]
    rows: Rows


class Problem(NamedTuple):
    """Something of `file` that is not in the result, in words; `amount` is how many times, or how many bytes."""

    file: str
    what: str
    amount: int


@dataclass(frozen=True)
class PipelineStage:
    """One operator of the data pipeline; -1 is the parent of the one that is nearest to the consumer.

    `queue_sizes` are samples of its output queue (empty for one without a queue), `cpu_percent` is its mean share of
    the whole machine's processors; None where it was not sampled.
    """

    id: int
    type: str
    workers: int
    parent: int
    children: tuple[int, ...]
    queue_capacity: int
    queue_sizes: tuple[float, ...]
    cpu_percent: float | None = None


@dataclass(frozen=True, eq=False)
class Capture:
    """All that was read out of one window of one device."""

    device: int
    #: "cpu", "ascend" or "gpu".
    target: str
    #: What 0 ns is: "epoch" (wall clock), "monotonic" or "device" (a counter without an anchor).
    clock: str
    operators: Sequence[Operator] = ()
    names: Sequence[str] = ()
    executions: Rows = field(default_factory=lambda: np.empty(0, EXECUTION))
    #: What the device did below its operators (kernels of a GPU, events, notifications, copies), as `EXECUTION`: part
    #: of the timeline, never of sums over operators.
    activities: Rows = field(default_factory=lambda: np.empty(0, EXECUTION))
    totals: Rows = field(default_factory=lambda: np.empty(0, TOTAL))
    overlap: Rows = field(default_factory=lambda: np.empty(0, OVERLAP))
    steps: Rows = field(default_factory=lambda: np.empty(0, STEP))
    reduces: Rows = field(default_factory=lambda: np.empty(0, REDUCE))
    spans: Rows = field(default_factory=lambda: np.empty(0, SPAN))
    memory: Rows = field(default_factory=lambda: np.empty(0, MEMORY))
    batches: Rows = field(default_factory=lambda: np.empty(0, BATCH))
    fetches: Rows = field(default_factory=lambda: np.empty(0, FETCH))
    pipeline: Sequence[PipelineStage] = ()
    ai_cpu: Rows = field(default_factory=lambda: np.empty(0, AI_CPU_TASK))
    lost: Rows = field(default_factory=lambda: np.empty(0, LOST))
    problems: Sequence[Problem] = ()
    #: What the capture itself says: versions, window, requested steps, the user's own metadata.
    metadata: Mapping[str, object] = field(default_factory=dict)


def unknown(layout: np.dtype[np.void], count: int) -> Rows:
    """Return `count` rows of which nothing is known: all fields are `MISSING`."""
    return np.full(count, MISSING, np.int64).astype(layout)


def by_start(rows: Rows) -> Rows:
    """Return `rows` in the order of their starts."""
    start = rows["start_ns"]
    return rows if np.all(start[:-1] <= start[1:]) else rows[np.argsort(start, kind="stable")]


def rows_at(times: Integers, steps: Rows) -> Integers:
    """Return the row of the step (dtype STEP, by start) that each time lies in, -1 if it is in none."""
    if not len(steps):
        return np.full(len(times), MISSING, np.int64)
    place = np.searchsorted(steps["start_ns"], times, "right") - 1
    is_inside = (place >= 0) & (times < steps["end_ns"][place])
    return np.where(is_inside, place, MISSING)


def steps_at(times: Integers, steps: Rows) -> Integers:
    """Return the number of the step that each time lies in, `MISSING` for none; of several the one that began last."""
    steps = by_start(steps)
    place = rows_at(times, steps)
    return np.where(place >= 0, steps["step"][place], MISSING) if len(steps) else place
