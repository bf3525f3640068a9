"""Files of the data pipeline: its tree of operators with samples of their queues, batches, use of the processors.

Times are milliseconds of the host's monotonic clock.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from instrument.trace import csvtext, jsontext
from instrument.trace.events import BATCH, FETCH, MISSING, Integers, PipelineStage, Problem, Rows
from instrument.trace.text import LIMIT, Buffer, Losses, lines, number

_MS = 10**6
#: Lines that are converted at a time.
_BLOCK = 1 << 16
#: Numbers with more digits are no milliseconds.
_DIGITS = 12
#: Where the values of a line go: (type, sub) for times; lines of type 1 have the capacity as `sub`.
_TIMES = {0: "pipeline_ns", 1: "push_ns", 2: "total_ns"}
_INTERVAL = re.compile(rb'"sampling_interval"\s*:\s*(\d{1,9})')
_ROOT = 0


class Pipeline(NamedTuple):
    """The stages in the order of the file; the interval between two samples is `MISSING` where it is not told."""

    stages: list[PipelineStage]
    sampling_interval_ms: int
    problems: list[Problem]


class Batches(NamedTuple):
    """Batches as `BATCH`, in the order in which the file first names them."""

    batches: Rows
    problems: list[Problem]


class CpuUse(NamedTuple):
    """Use of the processors in percent of all of them: of the process, and of each operator in `stages`.

    `machine` has the means of the machine's own lists (percents, and counts of processes and of switches); `lengths`
    says how many samples each list has: they differ, so that a sample has no certain time.
    """

    processors: int
    sampling_interval_ms: int
    time_ns: Integers
    lengths: dict[str, int]
    machine: dict[str, float]
    process_percent: float | None
    stages: dict[int, float]
    problems: list[Problem]


class Fetches(NamedTuple):
    """How long the device waited for each batch, and what its queue held then, as `FETCH`."""

    fetches: Rows
    problems: list[Problem]


def pipeline(data: Buffer, file: str) -> Pipeline:
    """`pipeline_profiling_<device>.json`; a damaged file gives the stages that are whole."""
    losses = Losses(file)
    stages: dict[int, PipelineStage] = {}
    for element in jsontext.elements(data, losses, "op_info"):
        stage = _stage(element, losses)
        if stage is None or stage.id in stages:
            losses.add("stages that cannot be read, or are there twice")
        else:
            stages[stage.id] = stage
    interval = _INTERVAL.search(data)
    _count_absent(list(stages.values()), losses)
    found = _with_parents(list(stages.values()), losses)
    return Pipeline(found, int(interval[1]) if interval else MISSING, losses.problems())


def _count_absent(stages: Sequence[PipelineStage], losses: Losses) -> None:
    known = {stage.id for stage in stages}
    named = {child for stage in stages for child in stage.children} | {stage.parent for stage in stages}
    losses.add("stages that others name and that are not there", len(named - known - {MISSING}))


def _stage(element: Any, losses: Losses) -> PipelineStage | None:
    if not isinstance(element, dict) or not _is_id(element.get("op_id")):
        return None
    children = element.get("children") or []
    metrics = element.get("metrics") or {}
    queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
    queue = queue if isinstance(queue, dict) else {}
    is_whole = not metrics or (_is_id(queue.get("length")) and isinstance(queue.get("size"), list))
    losses.add("stages whose queue is not told", not is_whole)
    if not isinstance(children, list) or not all(map(_is_id, children)):
        return None
    return PipelineStage(
        id=element["op_id"],
        type=str(element.get("op_type", "")),
        workers=_whole(element.get("num_workers")),
        parent=MISSING,
        children=tuple(children),
        queue_capacity=_whole(queue.get("length")),
        queue_sizes=tuple(_samples(queue.get("size"), losses)),
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT


def _whole(value: Any) -> int:
    return int(value) if _is_id(value) else MISSING


def _samples(value: Any, losses: Losses) -> list[float]:
    """The numbers in a list; those with a fraction come as text."""
    found = [number(str(sample)) for sample in value] if isinstance(value, list) else []
    kept = [sample for sample in found if sample is not None]
    losses.add("samples that are no numbers", len(found) - len(kept))
    return kept


def _with_parents(stages: list[PipelineStage], losses: Losses) -> list[PipelineStage]:
    parents: dict[int, int] = {}
    for stage in stages:
        for child in stage.children:
            if parents.setdefault(child, stage.id) != stage.id:
                losses.add("stages with several parents: only the first is kept")
    return [replace(stage, parent=parents.get(stage.id, MISSING)) for stage in stages]


def queued(stages: Sequence[PipelineStage]) -> list[PipelineStage]:
    """The stages that have a queue, breadth first from the root, which comes first with or without one.

    Their parents and children are the nearest ones that have a queue, too.
    """
    by_id = {stage.id: stage for stage in stages}
    root = by_id.get(_ROOT) or next((stage for stage in stages if stage.parent == MISSING), None)
    if root is None:
        return []
    found, seen, pending = [], {root.id}, [(root, MISSING)]
    for stage, parent in pending:
        children = _nearest(stage, by_id, seen)
        found.append(replace(stage, parent=parent, children=tuple(child.id for child in children)))
        pending.extend((child, stage.id) for child in children)
    return found


def _nearest(stage: PipelineStage, by_id: dict[int, PipelineStage], seen: set[int]) -> list[PipelineStage]:
    """The nearest descendants with a queue, in order; none of those in `seen`, as damaged trees may have rings."""
    found, pending = [], list(reversed(stage.children))
    while pending:
        child = by_id.get(pending.pop())
        if child is None or child.id in seen:
            continue
        seen.add(child.id)
        if child.queue_capacity == MISSING:
            pending.extend(reversed(child.children))
        else:
            found.append(child)
    return found


_RAW = {
    "id": ("op_id",),
    "type": ("op_type",),
    "workers": ("num_workers",),
    "sizes": ("output_queue_size",),
    "capacity": ("output_queue_length",),
    "interval": ("sample_interval",),
    "parent": ("parent_id",),
    "children": ("children_id",),
}


def pipeline_table(data: Buffer, file: str) -> Pipeline:
    """`minddata_pipeline_raw_<device>.csv`: what older MindSpore derives from the samples; stages with a queue only."""
    losses = Losses(file)
    stages, interval = [], MISSING
    for block in csvtext.blocks(data, losses, _RAW, ("id", "type"), expected=True):
        ids, has_id = block.numbers("id")
        losses.add("rows without an id", int((~has_id).sum()))
        cells = [block.text(key) for key in ("type", "workers", "parent", "children", "capacity", "sizes", "interval")]
        for stage, known, *texts in zip(ids.tolist(), has_id.tolist(), *cells, strict=True):
            if known:
                workers, parent, capacity = (_cell(texts[place], losses) for place in (1, 2, 4))
                children, sizes = (_samples(_list(texts[place], losses), losses) for place in (3, 5))
                tree = tuple(int(child) for child in children if abs(child) < LIMIT)
                stages.append(PipelineStage(stage, texts[0], workers, parent, tree, capacity, tuple(sizes)))
                interval = _cell(texts[6], losses)
    _count_absent(stages, losses)
    return Pipeline(stages, interval, losses.problems())


def _cell(text: str, losses: Losses) -> int:
    """A whole number; an empty cell says that there is no queue, or no parent."""
    value = number(text.strip())
    losses.add("cells that hold no number", value is None and bool(text.strip()))
    return MISSING if value is None or not value.is_integer() or abs(value) >= LIMIT else int(value)


def _list(text: str, losses: Losses) -> list[Any]:
    return list(jsontext.elements(text.encode(), losses)) if text.strip() else []


def batches(data: Buffer, file: str) -> Batches:
    """`device_queue_profiling_<device>.txt` or `dataset_iterator_profiling_<device>.txt`.

    Lines `type sub batch value [ms]`: of type 0 with a time (sub 0 in the pipeline, 1 on its way into the queue, 2 the
    whole batch), of type 1 with the size of the queue (sub is its capacity). A number that comes again is a new batch.
    """
    losses = Losses(file)
    rows: list[Integers] = [_lines(block, losses) for block in _blocks_of_lines(data, losses)]
    table = np.concatenate([np.empty((0, 5), np.int64), *rows])
    is_time, is_queue = table[:, 0] == 0, table[:, 0] == 1
    usable = (is_time & np.isin(table[:, 1], list(_TIMES))) | is_queue
    losses.add("lines of an unknown kind", int((~usable).sum()))
    table = table[usable]
    found = _as_batches(table, np.where(table[:, 0] == 1, len(_TIMES), table[:, 1]))
    lacks = [found[name] == MISSING for name in (*_TIMES.values(), "queue_size")]
    is_partial = np.logical_or.reduce([column for column in lacks if not column.all()] or [np.zeros(len(found), bool)])
    losses.add("batches without all of the lines that others have", int(is_partial.sum()))
    return Batches(found, losses.problems())


def _blocks_of_lines(data: Buffer, losses: Losses) -> Iterator[list[bytes]]:
    rest = lines(data)
    while block := list(itertools.islice(rest, _BLOCK)):
        if not block[-1].endswith(b"\n"):
            losses.add("bytes of a line that is cut off", len(block.pop()))
        yield block


def _lines(block: list[bytes], losses: Losses) -> Integers:
    """The integers of each line, with a time of `MISSING` where it has none; lines of another form are counted."""
    rows = []
    for line in block:
        words = line.split()
        if len(words) in (4, 5) and all(len(word) <= _DIGITS and word.isdigit() for word in words):
            rows.append([*map(int, words), MISSING][:5])
        elif words:
            losses.add("lines of another form")
    return np.array(rows, np.int64).reshape(-1, 5)


def _as_batches(table: Integers, column: Integers) -> Rows:
    """One row a batch; `column` says which of its values a line holds."""
    again = _occurrence(np.stack([table[:, 2], column], axis=1))
    keys, first, row = np.unique(np.stack([table[:, 2], again], axis=1), axis=0, return_index=True, return_inverse=True)
    result = np.empty(len(keys), BATCH)
    for name in BATCH.names or ():
        result[name] = MISSING
    row = row.reshape(-1)
    result["batch"] = keys[:, 0]
    for place, name in _TIMES.items():
        result[name][row[column == place]] = table[column == place, 3] * _MS
    is_queue = column == len(_TIMES)
    result["queue_capacity"][row[is_queue]], result["queue_size"][row[is_queue]] = (
        table[is_queue, 1],
        table[is_queue, 3],
    )
    timed = table[:, 4] >= 0
    result["time_ns"][row[timed]] = table[timed, 4] * _MS
    return result[np.argsort(first, kind="stable")]


def _occurrence(keys: Integers) -> Integers:
    """For each row how many equal ones stand before it."""
    if not len(keys):
        return np.empty(0, np.int64)
    order = np.lexsort(keys.T)
    ordered = keys[order]
    is_new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    place = np.arange(len(keys))
    result = np.empty(len(keys), np.int64)
    result[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    return result


def cpu_utilization(data: Buffer, file: str) -> CpuUse:
    """`minddata_cpu_utilization_<device>.json`; an operator's use is the mean of system and user time together."""
    losses = Losses(file)
    content = jsontext.mapping(data, losses)
    machine, process = (_lists(content.get(key), losses) for key in ("device_info", "process_info"))
    time_ms = [time for time in _samples(content.get("time_stamp"), losses) if 0 <= time < 10**_DIGITS]
    lengths = {key: len(values) for key, values in machine.items()}
    lengths |= {f"process_{key}": len(values) for key, values in process.items()}
    return CpuUse(
        processors=_whole(content.get("cpu_processor_num")),
        sampling_interval_ms=_whole(content.get("sampling_interval")),
        time_ns=np.array(time_ms, np.float64).astype(np.int64) * _MS,
        lengths=lengths,
        machine={key: float(np.mean(values)) for key, values in machine.items() if values},
        process_percent=_busy(process),
        stages=_stages(content.get("op_info"), losses if time_ms else Losses(file)),
        problems=losses.problems(),
    )


def _lists(value: Any, losses: Losses) -> dict[str, list[float]]:
    return {str(key): _samples(samples, losses) for key, samples in value.items()} if isinstance(value, dict) else {}


def _busy(lists: dict[str, list[float]]) -> float | None:
    """Mean of system time plus mean of user time; None without samples of both."""
    parts = [lists.get("sys_utilization"), lists.get("user_utilization")]
    return sum(float(np.mean(samples)) for samples in parts if samples) if all(parts) else None


def _stages(value: Any, losses: Losses) -> dict[int, float]:
    """Use by operator; the operator -1 is what belongs to none, and no loss."""
    result = {}
    for element in value if isinstance(value, list) else []:
        is_stage = isinstance(element, dict) and isinstance(element.get("op_id"), int)
        busy = _busy(_lists(element.get("metrics"), losses)) if is_stage else None
        if busy is None:
            losses.add("operators without samples of their use")
        elif element["op_id"] >= 0:
            result[element["op_id"]] = busy
    return result


def with_cpu_use(stages: Sequence[PipelineStage], use: dict[int, float]) -> list[PipelineStage]:
    """`stages` with their share of the processors, None for those that were not sampled."""
    return [replace(stage, cpu_percent=use.get(stage.id)) for stage in stages]


def fetches(data: Buffer, file: str) -> Fetches:
    """`minddata_getnext_profiling_<device>.txt` of a GPU: `<node> <start ns> <end ns> <queue size>`."""
    losses = Losses(file)
    rows = []
    for line in itertools.chain.from_iterable(_blocks_of_lines(data, losses)):
        words = line.split()
        if len(words) == 4 and all(len(word) < 19 and word.isdigit() for word in words[1:]):
            start, end, size = map(int, words[1:])
            rows.append((MISSING, MISSING, start, end - start, size))
        elif words:
            losses.add("lines of another form")
    return Fetches(np.array(rows, FETCH), losses.problems())
