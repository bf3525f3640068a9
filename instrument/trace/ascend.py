"""The raw files of one Ascend device -> one `Capture`.

Each kind of file has a module of its own, which gives what stands in it; here they meet: tasks get the names of their
operators, counters become times on one axis, and executions the step that they started in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np

from instrument.trace import ascend_executions, clocks, data_preprocess, hwts
from instrument.trace import framework_desc as framework
from instrument.trace.ascend_executions import OperatorMap
from instrument.trace.clocks import Clock
from instrument.trace.events import (
    BATCH,
    FETCH,
    LOST,
    MISSING,
    REDUCE,
    STEP,
    Capture,
    Integers,
    Problem,
    Rows,
    by_start,
    steps_at,
    unknown,
)
from instrument.trace.kinds import ascend_kind_of
from instrument.trace.records import Chunks, joined
from instrument.trace.step_traces import REDUCE_TAG, StepTrace, training_trace, ts_track
from instrument.trace.text import Buffer, Index, Losses

T = TypeVar("T")

#: Of `Capture.metadata["steps_from"]`: the steps are of the older step trace.
TRAINING_TRACE = "training_trace"
#: In the first step of a job with this operator the queue of the data is set up.
_QUEUE_SETUP = "Default/InitDataSetQueue"
#: Since 2021 task ids are those of 16 bits of a larger number.
_WRAPPING_HWTS = "hwts.data"


def capture(files: Mapping[str, Chunks], device: int) -> Capture:
    """Return all that the raw files of one device say.

    `files` maps names to contents, each with its slices joined: the name as it is on disk, with or without folders,
    but without the part of the slice, such as "hwts.log.data.45.dev.profiler_default_tag.1", "hwts.data.0",
    "DATA_PREPROCESS.AICPU.0", "data/Framework.task_desc_info.0", "info.json.0" or "host_start.log";
    `kinds.ascend_kind_of` tells which names are read. Files of other devices, and names of other kinds, are passed
    over. The content is bytes-like, or the pieces of it in order (also an iterator that makes them one by one: of a
    huge hwts file no piece is kept).

    Times are on the axis that `Capture.clock` names; the stream of an AI CPU task of the text form is its thread.
    """
    reader = _Reader(files, device)
    metadata: dict[str, object] = {}
    clock = _clock(reader, metadata)
    operators = _operators(reader)
    points = reader.read("point", framework.points)
    _name_points(reader, operators, points, metadata)

    trace = _step_trace(reader, operators, metadata)
    steps = _steps(trace, clock)
    whole = steps[(steps["start_ns"] != MISSING) & (steps["end_ns"] != MISSING)]
    executions, ai_cpu, lost = _executions(reader, operators, clock)
    for rows in (executions, ai_cpu):
        rows["step"] = steps_at(rows["start_ns"], whole)
    names = Index[str]()
    return Capture(
        device,
        "ascend",
        clock.kind,
        operators=tuple(operators.operators),
        steps=steps,
        executions=executions,
        reduces=_reduces(trace, steps, clock, lambda pair: names(_reduce_name(pair, points, operators))),
        batches=_batches(reader, clock),
        fetches=by_start(np.concatenate((_marked_fetches(trace, steps, clock), _fetches(reader, clock, whole)))),
        names=tuple(names.names),
        ai_cpu=ai_cpu,
        lost=lost,
        problems=tuple(reader.problems()),
        metadata=metadata,
    )


class _Reader:
    """Hands the file of a kind to its parser, and keeps what was lost of each.

    A file of the device itself comes before one of all devices; of several the first one is taken.
    """

    def __init__(self, files: Mapping[str, Chunks], device: int) -> None:
        self._files = files
        self._names: dict[str, str] = {}
        self._losses: dict[str, Losses] = {}
        self._others: list[str] = []
        kinds = [(name, kind) for name in files if (kind := ascend_kind_of(name)) and kind.device in (device, None)]
        for name, kind in sorted(kinds, key=lambda pair: pair[1].device is None):
            if self._names.setdefault(kind.name, name) != name and kind.device is not None:
                self._others.append(name)

    def name(self, kind: str) -> str:
        """Return the name of the file of a kind, "" where there is none."""
        return self._names.get(kind, "")

    def losses(self, kind: str) -> Losses:
        return self._losses.setdefault(kind, Losses(self.name(kind)))

    def read(self, kind: str, parse: Callable[[Buffer, Losses], T]) -> T:
        """Return what `parse` finds in the file of a kind; where there is none, what it finds in an empty one."""
        return self.read_chunks(kind, lambda data, losses: parse(joined(data), losses))

    def read_chunks(self, kind: str, parse: Callable[[Chunks, Losses], T]) -> T:
        """Do the same for a parser that needs no more than a piece at a time."""
        return parse(self._files[self._names[kind]] if kind in self._names else b"", self.losses(kind))

    def problems(self) -> list[Problem]:
        """List all that was lost, file by file."""
        problems = [problem for losses in self._losses.values() for problem in losses.problems()]
        return problems + [Problem(name, "files of a kind that was read from another one", 1) for name in self._others]


def _clock(reader: _Reader, metadata: dict[str, object]) -> Clock:
    host, device = (reader.read(kind, clocks.start_log) for kind in ("host_start", "dev_start"))
    info = reader.read("info", clocks.device_info)
    start, end = (reader.read(kind, clocks.moment) for kind in ("start_info", "end_info"))
    for name, values in (("host_start", host.values), ("dev_start", device.values)):
        metadata.update({name: dict(values)} if values else {})
    for name, fields in (("device_info", info._asdict()), ("start_info", start._asdict()), ("end_info", end._asdict())):
        given = {key: value for key, value in fields.items() if value is not None}
        metadata.update({name: given} if given else {})
    return clocks.clock(host, device, info, start)


def _operators(reader: _Reader) -> OperatorMap:
    hashes = reader.read("hash_dic", framework.hash_dic)
    tasks = reader.read("task_desc", lambda data, losses: framework.tasks(data, losses, hashes))
    is_ge = ".vm" not in reader.name("graph_desc")
    graph = reader.read("graph_desc", lambda data, losses: framework.graph(data, losses, is_ge))
    if graph:
        undescribed = {tasks.names[row] for row in tasks.rows["name"].tolist()} - {
            described.name for described in graph
        }
        losses = reader.losses("graph_desc")
        losses.add("operators that it does not describe: their shapes are not known", len(undescribed))
    return OperatorMap(tasks, graph, reader.read("tensor_data", framework.tensors))


def _name_points(
    reader: _Reader, operators: OperatorMap, points: Mapping[int, str], metadata: dict[str, object]
) -> None:
    """Note which operators the forward pass starts and the backward pass ends with, where a file says so."""
    marks = reader.read("step_info", framework.step_info)
    for key, tag, mark in (("fp_start", 1, 2), ("bp_end", 2, 3)):
        row = int(operators.find(*np.array([marks[mark]]).T)[0]) if mark in marks else MISSING
        name = points.get(tag) or (operators.operators[row].full_name if row != MISSING else None)
        metadata.update({key: name} if name else {})


def _step_trace(reader: _Reader, operators: OperatorMap, metadata: dict[str, object]) -> StepTrace:
    skips_first = any(operator.full_name.startswith(_QUEUE_SETUP) for operator in operators.operators)
    old = reader.read("training_trace", partial(training_trace, skips_first=skips_first))
    new = reader.read("ts_track", partial(ts_track, skips_first=skips_first))
    if len(old.steps) and len(new.steps):
        reader.losses("ts_track").add("steps that the other step trace has", len(new.steps))
    if len(old.steps):
        metadata["steps_from"] = TRAINING_TRACE
    return old if len(old.steps) else new


def _steps(trace: StepTrace, clock: Clock) -> Rows:
    """Return steps (dtype STEP), numbered as the device does where it has one model and counts on, else from 1."""
    marked = trace.steps
    steps = np.empty(len(marked), STEP)
    steps["step"], steps["model"] = marked["step"], marked["model"]
    index = marked["index"]
    if len(marked) and np.all(marked["model"] == marked["model"][0]) and index[0] > 0 and np.all(np.diff(index) > 0):
        steps["step"] = index
    columns = (("start_ns", "start"), ("fp_start_ns", "forward"), ("bp_end_ns", "backward"), ("end_ns", "end"))
    for name, source in columns:
        steps[name] = _ns(clock, marked[source])
    return steps


def _executions(reader: _Reader, operators: OperatorMap, clock: Clock) -> tuple[Rows, Rows, Rows]:
    """Return executions, what the AI CPUs' file tells beside them (AI_CPU_TASK), where records were lost (LOST)."""
    ai_cpu = reader.read("aicpu", data_preprocess.ai_cpu)
    tasks = reader.read_chunks("hwts", hwts.decode)
    wraps = _WRAPPING_HWTS in reader.name("hwts")
    on_streams = ascend_executions.of_hwts(tasks, wraps, operators, clock, ai_cpu, reader.losses("hwts"))
    lost = np.empty(len(tasks.lost), LOST)
    lost["start_ns"], lost["end_ns"] = (_ns(clock, tasks.lost[name]) for name in ("start_cycles", "end_cycles"))
    del tasks  # the largest of all
    on_ai_cpu, ai_cpu_tasks = ascend_executions.of_aicpu(ai_cpu, operators, clock, reader.losses("aicpu"))
    both = np.concatenate((on_streams, on_ai_cpu)) if len(on_ai_cpu) else on_streams
    return by_start(both), by_start(ai_cpu_tasks), lost


def _ns(clock: Clock, cycles: Integers) -> Integers:
    """Return counters as times, `MISSING` for those that are none."""
    return clock.ns(np.where(clock.holds(cycles), cycles, MISSING))


def _reduces(trace: StepTrace, steps: Rows, clock: Clock, name_of: Callable[[np.void], int]) -> Rows:
    pairs = trace.reduces
    reduces = np.empty(len(pairs), REDUCE)
    _place(reduces, pairs, steps, clock)
    reduces["name"] = [name_of(pair) for pair in pairs]
    return reduces


def _place(rows: Rows, pairs: Rows, steps: Rows, clock: Clock) -> None:
    """Give pairs of marks their step, stream and times."""
    rows["step"], rows["stream"] = steps["step"][pairs["step"] - 1], pairs["stream"]
    rows["start_ns"] = clock.ns(pairs["start"])
    rows["duration_ns"] = clock.ns(pairs["end"]) - rows["start_ns"]


def _reduce_name(pair: np.void, points: Mapping[int, str], operators: OperatorMap) -> str:
    """The operator behind a communication: by its mark, or the next one on the stream of the mark."""
    tag = int(pair["tag"])
    if tag in points:
        return points[tag]
    row = operators.behind(int(pair["stream"]), int(pair["task"])) if tag >= REDUCE_TAG else MISSING
    return f"communication {tag}" if row == MISSING else operators.operators[row].full_name


def _batches(reader: _Reader, clock: Clock) -> Rows:
    """Return what the host put into the device's queue."""
    dp, tdt = (reader.read(kind, data_preprocess.pushes) for kind in ("dp", "tdt"))
    if len(dp) and len(tdt):
        reader.losses("dp").add("elements of the queue that TDT tells as well", len(dp))
    elements = tdt if len(tdt) else dp
    elements = elements[elements["time_us"] < clock.limit_us]
    batches = unknown(BATCH, len(elements))
    batches["time_ns"] = clock.ns_of_us(elements["time_us"])
    batches["batch"], batches["queue_size"] = elements["index"], elements["size"]
    return batches


def _fetches(reader: _Reader, clock: Clock, whole: Rows) -> Rows:
    """Return how the device took batches out of its queue, by its own file or by the table made of that."""
    rows = reader.read("aicpumi", data_preprocess.fetches)
    table = reader.read("fetch_table", data_preprocess.fetch_table)
    rows = rows if len(rows) else table
    rows = rows[np.maximum(rows["start_us"], rows["end_us"]) < clock.limit_us]
    fetches = unknown(FETCH, len(rows))
    fetches["start_ns"] = clock.ns_of_us(rows["start_us"])
    fetches["duration_ns"] = 1000 * (rows["end_us"] - rows["start_us"])
    fetches["queue_size"] = rows["size"]
    fetches["step"] = steps_at(fetches["start_ns"], whole)
    return fetches


def _marked_fetches(trace: StepTrace, steps: Rows, clock: Clock) -> Rows:
    """Return the same as the step trace marks it, which does not tell what the queue held."""
    fetches = unknown(FETCH, len(trace.fetches))
    _place(fetches, trace.fetches, steps, clock)
    return fetches
