"""The data pipelines of a window: their tree of stages with samples of queues and processors, and their batches.

Times are milliseconds of the host's monotonic clock. A window may have several pipelines, as of a loop that makes an
iterator for each epoch: those of one form go on where the one before ended and count as one. What is of another form,
as of an evaluation, is left out and counted. The first one's files lie in the folder of the window, further ones' in
`pipeline_1`, `pipeline_2`, ... below it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from instrument.trace.events import BATCH, FETCH, MISSING, Integers, PipelineStage, Problem, Rows, unknown
from instrument.trace.jsontext import Json, elements, mapping
from instrument.trace.text import LIMIT, Buffer, Column, Losses, csv_rows, lines, number

T = TypeVar("T")
_MS = 10**6
#: Lines that are converted at a time.
_BLOCK = 1 << 16
#: Numbers with more digits are no milliseconds.
_DIGITS = 12
#: Where the values of a line go: (type, sub) for times; lines of type 1 have the capacity as `sub`.
_TIMES = {0: "pipeline_ns", 1: "push_ns", 2: "total_ns"}
_INTERVAL = re.compile(rb'"sampling_interval"\s*:\s*(\d{1,9})')
_ROOT = 0


# ---------------------------------------------------------------- stages


class Pipeline(NamedTuple):
    """The stages in the order of the file; the interval between two samples is `MISSING` where it is not told."""

    stages: list[PipelineStage]
    sampling_interval_ms: int


def pipeline(data: Buffer, losses: Losses) -> Pipeline:
    """Read `pipeline_profiling_<device>.json`; a damaged file gives the stages that are whole."""
    stages: dict[int, PipelineStage] = {}
    for element in elements(data, losses, "op_info"):
        stage = _stage(element, losses)
        if stage is None or stage.id in stages:
            losses.add("stages that cannot be read, or are there twice")
        else:
            stages[stage.id] = stage
    interval = _INTERVAL.search(data)
    _count_absent(list(stages.values()), losses)
    tree = _with_parents(list(stages.values()), losses)
    return Pipeline(tree, int(interval[1]) if interval else MISSING)


def _count_absent(stages: Sequence[PipelineStage], losses: Losses) -> None:
    present = {stage.id for stage in stages}
    named = {child for stage in stages for child in stage.children} | {stage.parent for stage in stages}
    losses.add("stages that others name and that are not there", len(named - present - {MISSING}))


def _stage(element: Json, losses: Losses) -> PipelineStage | None:
    if not isinstance(element, dict) or (identity := _whole(element.get("op_id"))) == MISSING:
        return None
    metrics = element.get("metrics") or {}
    queue = metrics.get("output_queue") if isinstance(metrics, dict) else None
    queue = queue if isinstance(queue, dict) else {}
    capacity, sizes = _whole(queue.get("length")), queue.get("size")
    losses.add("stages whose queue is not told", bool(metrics) and (capacity == MISSING or not isinstance(sizes, list)))
    children = element.get("children") or []
    numbers = [_whole(child) for child in children] if isinstance(children, list) else [MISSING]
    if MISSING in numbers:
        return None
    return PipelineStage(
        id=identity,
        type=str(element.get("op_type", "")),
        workers=_whole(element.get("num_workers")),
        parent=MISSING,
        children=tuple(numbers),
        queue_capacity=capacity,
        queue_sizes=tuple(_samples(sizes, losses)),
    )


def _whole(value: Json) -> int:
    """Return a number that counts something, or `MISSING` for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LIMIT else MISSING


def _samples(value: Json, losses: Losses) -> list[float]:
    """Return the numbers in a list; those with a fraction come as text."""
    numbers = [number(str(sample)) for sample in value] if isinstance(value, list) else []
    kept = [sample for sample in numbers if sample is not None]
    losses.add("samples that are no numbers", len(numbers) - len(kept))
    return kept


def _with_parents(stages: list[PipelineStage], losses: Losses) -> list[PipelineStage]:
    parents: dict[int, int] = {}
    for stage in stages:
        for child in stage.children:
            if parents.setdefault(child, stage.id) != stage.id:
                losses.add("stages with several parents: only the first is kept")
    return [replace(stage, parent=parents.get(stage.id, MISSING)) for stage in stages]


def queued(stages: Sequence[PipelineStage]) -> list[PipelineStage]:
    """Return the stages that have a queue, breadth first from the root, which comes first with or without one.

    Their parents and children are the nearest ones that have a queue, too.
    """
    by_id = {stage.id: stage for stage in stages}
    root = by_id.get(_ROOT) or next((stage for stage in stages if stage.parent == MISSING), None)
    if root is None:
        return []
    result, seen, pending = [], {root.id}, [(root, MISSING)]
    for stage, parent in pending:
        children = _nearest(stage, by_id, seen)
        result.append(replace(stage, parent=parent, children=tuple(child.id for child in children)))
        pending.extend((child, stage.id) for child in children)
    return result


def _nearest(stage: PipelineStage, by_id: dict[int, PipelineStage], seen: set[int]) -> list[PipelineStage]:
    """Return the nearest descendants with a queue, in order, but none in `seen`: damaged trees may have rings."""
    result, pending = [], list(reversed(stage.children))
    while pending:
        child = by_id.get(pending.pop())
        if child is None or child.id in seen:
            continue
        seen.add(child.id)
        if child.queue_capacity == MISSING:
            pending.extend(reversed(child.children))
        else:
            result.append(child)
    return result


_TABLE = {
    "id": Column(("op_id",), is_required=True),
    "type": Column(("op_type",), is_required=True),
    "workers": Column(("num_workers",)),
    "sizes": Column(("output_queue_size",)),
    "capacity": Column(("output_queue_length",)),
    "interval": Column(("sample_interval",)),
    "parent": Column(("parent_id",)),
    "children": Column(("children_id",)),
}


def pipeline_table(data: Buffer, losses: Losses) -> Pipeline:
    """Read `minddata_pipeline_raw_<device>.csv`, made by older MindSpore of the samples; stages with a queue only."""
    stages, interval = [], MISSING
    for block in csv_rows(data, losses, _TABLE, is_whole=True):
        ids, has_id = block.numbers("id")
        losses.add("rows without an id", int((~has_id).sum()))
        cells = [block.text(key) for key in ("type", "workers", "parent", "capacity", "children", "sizes", "interval")]
        for stage, is_known, kind, *texts in zip(ids.tolist(), has_id.tolist(), *cells, strict=True):
            if is_known:
                workers, parent, capacity = (_cell(text, losses) for text in texts[:3])
                children, sizes = (_samples(_list(text, losses), losses) for text in texts[3:5])
                tree = tuple(int(child) for child in children if abs(child) < LIMIT)
                stages.append(PipelineStage(stage, kind, workers, parent, tree, capacity, tuple(sizes)))
                interval = _cell(texts[5], losses)
    _count_absent(stages, losses)
    return Pipeline(stages, interval)


def _cell(text: str, losses: Losses) -> int:
    """Return a whole number; an empty cell says that there is no queue, or no parent."""
    value = number(text.strip())
    losses.add("cells that hold no number", value is None and bool(text.strip()))
    return MISSING if value is None or not value.is_integer() or abs(value) >= LIMIT else int(value)


def _list(text: str, losses: Losses) -> list[Json]:
    return list(elements(text.encode(), losses)) if text.strip() else []


# ---------------------------------------------------------------- use of the processors


class CpuUse(NamedTuple):
    """Use of the processors in percent of all of them: of the process, and of each operator in `stages`.

    `machine` has the means of the machine's own lists (percents, and counts of processes and of switches).
    """

    processors: int
    machine: dict[str, float]
    process_percent: float | None
    stages: dict[int, float]


def cpu_utilization(data: Buffer, losses: Losses) -> CpuUse:
    """Read `minddata_cpu_utilization_<device>.json`; an operator's use is the mean of system and user time together."""
    content = mapping(data, losses)
    machine, process = (_lists(content.get(key), losses) for key in ("device_info", "process_info"))
    is_sampled = any(0 <= time < 10**_DIGITS for time in _samples(content.get("time_stamp"), losses))
    return CpuUse(
        processors=_whole(content.get("cpu_processor_num")),
        machine={key: float(np.mean(values)) for key, values in machine.items() if values},
        process_percent=_busy(process),
        stages=_uses_of_stages(content.get("op_info"), losses if is_sampled else Losses(losses.file)),
    )


def _lists(value: Json, losses: Losses) -> dict[str, list[float]]:
    return {str(key): _samples(samples, losses) for key, samples in value.items()} if isinstance(value, dict) else {}


def _busy(lists: dict[str, list[float]]) -> float | None:
    """Return the mean of system time plus mean of user time; None without samples of both."""
    parts = [lists.get("sys_utilization"), lists.get("user_utilization")]
    return sum(float(np.mean(samples)) for samples in parts if samples) if all(parts) else None


def _uses_of_stages(value: Json, losses: Losses) -> dict[int, float]:
    """Return the use by operator. The operator -1 is what belongs to none, and no loss."""
    result = {}
    for element in value if isinstance(value, list) else []:
        stage = element if isinstance(element, dict) else {}
        identity = stage.get("op_id")
        busy = _busy(_lists(stage.get("metrics"), losses)) if isinstance(identity, int) else None
        if busy is None or not isinstance(identity, int):
            losses.add("operators without samples of their use")
        elif identity >= 0:
            result[identity] = busy
    return result


# ---------------------------------------------------------------- batches


def batches(data: Buffer, losses: Losses) -> Rows:
    """Read `device_queue_profiling_<device>.txt` or `dataset_iterator_profiling_<device>.txt` (dtype BATCH).

    Lines `type sub batch value [ms]`: of type 0 with a time (sub 0 in the pipeline, 1 on its way into the queue, 2 the
    whole batch), of type 1 with the size of the queue (sub is its capacity). A number that comes again is a new batch.
    """
    rows: list[Integers] = [_lines(block, losses) for block in _blocks_of_lines(data, losses)]
    table = np.concatenate([np.empty((0, 5), np.int64), *rows])
    is_time, is_queue = table[:, 0] == 0, table[:, 0] == 1
    usable = (is_time & np.isin(table[:, 1], list(_TIMES))) | is_queue
    losses.add("lines of an unknown kind", int((~usable).sum()))
    table = table[usable]
    rows_of_batches = _as_batches(table, np.where(table[:, 0] == 1, len(_TIMES), table[:, 1]))
    lacks = [rows_of_batches[name] == MISSING for name in (*_TIMES.values(), "queue_size")]
    is_partial = np.logical_or.reduce(
        [column for column in lacks if not column.all()] or [np.zeros(len(rows_of_batches), bool)]
    )
    losses.add("batches without all of the lines that others have", int(is_partial.sum()))
    return rows_of_batches


def _blocks_of_lines(data: Buffer, losses: Losses) -> Iterator[list[bytes]]:
    rest = lines(data)
    while block := list(itertools.islice(rest, _BLOCK)):
        if not block[-1].endswith(b"\n"):
            losses.add("bytes of a line that is cut off", len(block.pop()))
        yield block


def _lines(block: list[bytes], losses: Losses) -> Integers:
    """Return the integers of each line, its time `MISSING` where it has none; lines of another form are counted."""
    rows = []
    for line in block:
        words = line.split()
        if len(words) in (4, 5) and all(len(word) <= _DIGITS and word.isdigit() for word in words):
            rows.append([*map(int, words), MISSING][:5])
        elif words:
            losses.add("lines of another form")
    return np.array(rows, np.int64).reshape(-1, 5)


def _as_batches(table: Integers, column: Integers) -> Rows:
    """Return one row a batch; `column` says which of its values a line holds."""
    again = _occurrence(np.stack([table[:, 2], column], axis=1))
    keys, first, row = np.unique(np.stack([table[:, 2], again], axis=1), axis=0, return_index=True, return_inverse=True)
    result = unknown(BATCH, len(keys))
    row = row.reshape(-1)
    result["batch"] = keys[:, 0]
    for place, name in _TIMES.items():
        result[name][row[column == place]] = table[column == place, 3] * _MS
    is_queue = column == len(_TIMES)
    for name, place in (("queue_capacity", 1), ("queue_size", 3)):
        result[name][row[is_queue]] = table[is_queue, place]
    timed = table[:, 4] >= 0
    result["time_ns"][row[timed]] = table[timed, 4] * _MS
    return result[np.argsort(first, kind="stable")]


def _occurrence(keys: Integers) -> Integers:
    """Return how many equal rows stand before each."""
    if not len(keys):
        return np.empty(0, np.int64)
    order = np.lexsort(keys.T)
    ordered = keys[order]
    is_new = np.append(True, (ordered[1:] != ordered[:-1]).any(axis=1))
    place = np.arange(len(keys))
    result = np.empty(len(keys), np.int64)
    result[order] = place - np.maximum.accumulate(np.where(is_new, place, 0))
    return result


def fetches(data: Buffer, losses: Losses) -> Rows:
    """Read `minddata_getnext_profiling_<device>.txt` of a GPU, `<node> <start ns> <end ns> <queue size>`, as FETCH."""
    rows = []
    for line in itertools.chain.from_iterable(_blocks_of_lines(data, losses)):
        words = line.split()
        if len(words) == 4 and all(len(word) < 19 and word.isdigit() for word in words[1:]):
            start, end, size = map(int, words[1:])
            rows.append((MISSING, MISSING, start, end - start, size))
        elif words:
            losses.add("lines of another form")
    return np.array(rows, FETCH)


# ---------------------------------------------------------------- all pipelines of a window

_FOLDER = re.compile(r"(?:.*/)?pipeline_(\d{1,9})/[^/]*", re.ASCII)
_STAGES = {"pipeline": pipeline, "pipeline_table": pipeline_table}
#: Without a queue of the device, what the iterator saw.
_BATCHES = ("device_queue", "iterator")


class Parse(Protocol):
    """Returns what a parser reads of the file of a name."""

    def __call__(self, name: str, parser: Callable[[Buffer, Losses], T], /) -> T: ...


@dataclass(eq=False)
class Recorded:
    """What the files of one pipeline say, or those of several as one; `batches` (dtype BATCH) are of `batches_file`."""

    stages: list[PipelineStage] = field(default_factory=list)
    sampling_interval_ms: int | None = None
    use: CpuUse | None = None
    batches: Rows = field(default_factory=lambda: np.empty(0, BATCH))
    batches_file: str = ""

    @property
    def form(self) -> list[PipelineStage]:
        """Return what does not change from epoch to epoch."""
        return [replace(stage, queue_sizes=(), cpu_percent=None) for stage in self.stages]


def recorded(files: Mapping[str, Sequence[str]], parse: Parse) -> tuple[Recorded, list[Problem]]:
    """Return the pipeline of `files` (kind -> names), and the batches that are not of it."""
    numbered: dict[int, dict[str, list[str]]] = {}
    for kind in (*_STAGES, "cpu_use", *_BATCHES):
        for name in files.get(kind, ()):
            match = _FOLDER.fullmatch(name)
            numbered.setdefault(int(match[1]) if match else 0, {}).setdefault(kind, []).append(name)
    pipelines = [_one(numbered[number], parse) for number in sorted(numbered)]
    kept = next((recording for recording in pipelines if recording.stages), pipelines[0] if pipelines else Recorded())
    alike = [recording for recording in pipelines if recording.form == kept.form]
    problems = [
        Problem(
            recording.batches_file or "data pipeline", "batches of a pipeline of another form", len(recording.batches)
        )
        for recording in pipelines
        if recording.form != kept.form
    ]
    stages = [_joined(of_each) for of_each in zip(*(recording.stages for recording in alike), strict=True)]
    batches = np.concatenate([kept.batches[:0], *(recording.batches for recording in alike)])
    return replace(kept, stages=stages, batches=batches), problems


def _one(files: Mapping[str, Sequence[str]], parse: Parse) -> Recorded:
    recorded = Recorded()
    for kind, parser in _STAGES.items():
        for name in files.get(kind, ()) if not recorded.stages else ():
            recorded.stages, recorded.sampling_interval_ms = parse(name, parser)
    for name in files.get("cpu_use", ()):
        recorded.use = parse(name, cpu_utilization)
        recorded.stages = [replace(stage, cpu_percent=recorded.use.stages.get(stage.id)) for stage in recorded.stages]
    for name in (name for kind in _BATCHES for name in files.get(kind, ())):
        if not len(recorded.batches):
            recorded.batches, recorded.batches_file = parse(name, batches), name
    return recorded


def _joined(of_each: Sequence[PipelineStage]) -> PipelineStage:
    """Return one stage in each of several pipelines as one, its use of the processors weighed by samples."""
    sizes = tuple(size for stage in of_each for size in stage.queue_sizes)
    uses = [(stage.cpu_percent, max(len(stage.queue_sizes), 1)) for stage in of_each if stage.cpu_percent is not None]
    mean = sum(use * count for use, count in uses) / sum(count for _, count in uses) if uses else None
    return replace(of_each[0], queue_sizes=sizes, cpu_percent=mean)
