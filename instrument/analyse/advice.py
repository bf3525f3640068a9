"""Advice about a profile: sentences, each with the figure that it rests on. Without a figure there is no advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.analyse import layout, pipeline, stragglers
from instrument.analyse import steps as step_tables
from instrument.analyse.executions import is_collective
from instrument.analyse.table import Table, Value
from instrument.analyse.tables import ProfileTables
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, SPAN_CALLBACK, PipelineStage

#: A few operators are worth a look of their own when they take half of the time: then work on the rest gains less.
FEW_OPERATORS, FEW_PERCENT = 3, 50.0
#: With hardly more operators than a few, a few of them take half of the time anyway.
LEAST_OPERATORS = 3 * FEW_OPERATORS
#: Below a tenth of the time, even without any conversion a step would not become noticeably faster.
CONVERSION_PERCENT = 10.0
#: Ranks that are apart by less than a tenth of a step hardly hold each other up.
APART_PERCENT = 10.0
#: What passes before the first operator, but not for data, is worth a look from the same share of a step on.
LATE_PERCENT = 10.0
#: AI CPU is a small processor beside the AI Core: above this share its operators are where a step can get faster.
AI_CPU_PERCENT = 5.0
#: A worker is busy, or has little to do, above and below these shares of one processor; MindInsight has the same.
BUSY_PERCENT, IDLE_PERCENT = 75.0, 20.0
#: Operators that only change how the same numbers are stored; those of Ascend, of the GPU and of the CPU.
CONVERSIONS = frozenset(
    {
        "Cast", "TransData", "Transpose", "TransposeD", "TensorMove", "Identity", "Reformat", "FormatTransfer",
        "TransDataRNN", "Contiguous", "AsStrided",
    }
)  # fmt: skip
#: What waits for data on AI CPU does not compute there.
_WAITS = ("getnext", "get_next", "initdataset")
_MS = 10**6
#: Steps that differ by less than this factor are alike.
_ALIKE = 2.0
#: Operators that multiply matrices: their time falls with the precision.
_MATRIX = ("matmul", "conv", "dense", "attention")
_LOWER_PRECISION = (
    "give it a lower precision (amp_level, or a cast to float16 or bfloat16), and dimensions that are multiples of 16"
)
_ON_THE_HOST = (
    "check that it has the processors (OMP_NUM_THREADS, other processes), and whether its inputs need to be that large"
)
_FEWER_CALLS = (
    "look at its inputs (column input_shapes): smaller ones, fewer calls, or one fused operator of mindspore.ops for "
    "several small ones"
)

#: Type of a stage, without "Op" and "Dataset" -> what makes it faster.
_REMEDIES: Mapping[str, str] = {
    "Map": "give map() more num_parallel_workers, and python_multiprocessing=True where its functions are Python",
    "Batch": "give batch() more num_parallel_workers, or do the work of per_batch_map earlier",
    "Generator": "give GeneratorDataset more num_parallel_workers, or do less in its Python code",
    "Shuffle": "make the buffer_size of shuffle() smaller, or shuffle the files instead of the rows",
    "ImageFolder": "read from MindRecord or TFRecord files, or from a faster disk, with more num_parallel_workers",
    "MindRecord": "read with more num_parallel_workers, or from a faster disk",
    "TFReader": "read with more num_parallel_workers from more files, or from a faster disk",
}
_NO_PIPELINE = "Profile with data_process=True to see which stage of the data pipeline is slow."
_NO_PIPELINE_ON_CPU = (
    "The trace has no data pipeline: it is recorded where the profiler is made before the dataset's iterator. Mark the "
    "Python code between the steps with span() to see what it takes."
)
_OTHER_REMEDY = "give it more num_parallel_workers, or use cache() for what is the same in each epoch"


class Advice(NamedTuple):
    """A sentence or two about `topic`: "ranks", "data", "operators", "conversions", "AI CPU", "steps" or "window"."""

    topic: str
    text: str


def advice(tables: ProfileTables) -> list[Advice]:
    """Apply all rules to the tables of a profile, those first that say how far the others can be trusted."""
    rules = (_window, _warm_up, _ranks, _data, _few_operators, _conversions, _ai_cpu)
    return [Advice(topic, text) for rule in rules for topic, text in rule(tables)]


def sentences(tables: ProfileTables) -> list[str]:
    """Return the texts of `advice`."""
    return [item.text for item in advice(tables)]


#: Topics and texts that a rule yields.
_Advised = Iterator[tuple[str, str]]


# ---------------------------------------------------------------- the window and its steps


def _window(tables: ProfileTables) -> _Advised:
    metadata = tables.metadata
    if metadata.get("complete") is not False:
        return
    asked, first, last = metadata.get("requested"), metadata.get("first_step"), metadata.get("last_step")
    text = "The window is incomplete"
    if isinstance(asked, (list, tuple)) and len(asked) == 2:
        text += f": steps {asked[0]} to {asked[1]} were asked for"
        has_steps = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last
        text += f", it holds {first} to {last}" if has_steps else ", it holds none"
    reason = str(metadata.get("reason") or "").rstrip(".")
    yield "window", f"{text}{f' ({reason})' if reason else ''}. Means over its steps may be of too few of them."


def _warm_up(tables: ProfileTables) -> _Advised:
    text = step_tables.warm_up(tables.steps)
    if text:
        yield "steps", f"{text} Let the window begin later, or look at the mean without the first step."


# ---------------------------------------------------------------- ranks


def _ranks(tables: ProfileTables) -> _Advised:
    ranks = tables.each()
    slowest = stragglers.verdict(ranks, stragglers.spread(ranks)) if len(ranks) > 1 else None
    if slowest is None or slowest.spread_percent < APART_PERCENT:
        return
    text = stragglers.in_words(slowest)
    if slowest.behind_percent < APART_PERCENT:
        yield "ranks", f"{text} Now one is late and now another: look for batches of unequal work and other processes."
        return
    text += " The others wait for it."
    if slowest.late_ns is not None and 2 * slowest.late_ns > slowest.own_ns - slowest.others_ns:
        text += (
            f" {slowest.late_ns / _MS:.3f} ms of that pass before its first operator: look at its data, and at what "
        )
        text += "runs between its steps."
    yield (
        "ranks",
        f"{text} profile(device={slowest.device}), or --device {slowest.device}, has its steps and operators.",
    )


# ---------------------------------------------------------------- data


def _data(tables: ProfileTables) -> _Advised:
    verdict = tables.waiting
    late = _late_start(tables.steps)
    if late is None and not verdict.is_waiting:
        if verdict.near_miss:
            head = f"The training hardly waits for data yet: {verdict.reason}"
            yield "data", " ".join((head, *_what_to_do(tables, verdict.stage)))
        return
    if verdict.kind == pipeline.NOT_INPUT_BOUND and not verdict.is_of_steps:
        if late is None or late.percent < LATE_PERCENT:
            return
        yield "data", f"{late.words}, but not for data: {verdict.reason} {_callbacks(tables)}"
        return
    is_said_twice = verdict.is_of_steps and late is not None
    head = f"The training waits for data: {verdict.reason}" if verdict.is_waiting and not is_said_twice else ""
    limit = f"more than {pipeline.INTERVAL_NS // _MS} ms means waiting for data."
    tail = f"{late.words}, and {limit}" if late is not None else ""
    yield "data", " ".join(filter(None, (head, tail, *_what_to_do(tables, verdict.stage))))


class _Late(NamedTuple):
    """What passes before the first operator of steps, in words, and its share of all steps in percent."""

    words: str
    percent: float


def _late_start(table: Table) -> _Late | None:
    """Return how much passes before the first operator of the steps, where it is more than a launch on average.

    The first of several steps often warms up and is left out.
    """
    times, totals = table.known("iteration_interval_ns", "total_ns")
    if len(times) > 1:
        times, totals = times[1:], totals[1:]
    if not len(times) or not totals.sum() or times.mean() <= pipeline.INTERVAL_NS:
        return None
    percent = 100 * float(times.sum()) / float(totals.sum())
    median, late = float(np.median(times)), times > pipeline.INTERVAL_NS
    if late.all():
        which = "each step" if times.max() <= _ALIKE * times.min() else "the median step"
        share = 100 * median / float(np.median(totals))
        return _Late(f"{median / _MS:.3f} ms of {which} ({share:.1f} % of it) pass before its first operator", percent)
    return _Late(
        f"In {int(late.sum())} of {len(times)} steps {float(times[late].mean()) / _MS:.3f} ms pass before the first "
        f"operator ({percent:.1f} % of the time of all steps; the median step waits {median / _MS:.3f} ms)",
        percent,
    )


def _callbacks(tables: ProfileTables) -> str:
    """Return a sentence on the time between steps that callbacks take, if the trace has their marks."""
    spans = tables.capture.spans
    times = spans["duration_ns"][(spans["kind"] == SPAN_CALLBACK) & (spans["duration_ns"] >= 0)]
    if not len(times) or not len(tables.capture.steps):
        return "Look at what runs between the steps: callbacks, logging, evaluation."
    each = int(times.sum()) / len(tables.capture.steps) / _MS
    return f"Callbacks take {each:.3f} ms a step of what runs between the steps."


def _what_to_do(tables: ProfileTables, stage: PipelineStage | None) -> Iterator[str]:
    if stage is None:
        if not tables.capture.pipeline:
            yield _NO_PIPELINE_ON_CPU if tables.target == "cpu" else _NO_PIPELINE
        return
    name, count = pipeline.name_of(stage), pipeline.processors(tables.capture)
    row = next(row for row in tables.pipeline.records() if row["id"] == stage.id)
    use = row["worker_cpu_percent"]
    who = f"The worker of {name}" if stage.workers == 1 else f"Each worker of {name}"
    if isinstance(use, (int, float)) and use > 100:
        yield f"{who} uses {use:.0f} % of a processor, with threads of its own: it computes."
    elif isinstance(use, (int, float)) and use > BUSY_PERCENT:
        yield f"{who} uses {use:.0f} % of a processor: it computes."
    elif isinstance(use, (int, float)) and use < IDLE_PERCENT:
        yield f"{who} uses only {use:.0f} % of a processor: it waits itself, for files or for Python."
    if count is not None and 0 < stage.workers < count:
        yield f"It has num_parallel_workers={stage.workers} on a machine with {count} processors."
    kind = stage.type.removesuffix("Op").removesuffix("Dataset")
    yield f"To make {name} faster, {_REMEDIES.get(kind, _OTHER_REMEDY)}."


# ---------------------------------------------------------------- operators


def _few_operators(tables: ProfileTables) -> _Advised:
    table = _computing(tables.operators)
    if len(table) < LEAST_OPERATORS:
        return
    share = np.cumsum(_shares(table))
    few = int(np.searchsorted(share, FEW_PERCENT)) + 1
    if few > FEW_OPERATORS:
        return
    rows = table.take(slice(0, few)).records()
    pairs = zip(rows, _shares(table).tolist(), strict=False)
    names = ", ".join(f"{_name(row['full_name'])} ({part:.1f} %)" for row, part in pairs)
    takes = "operator takes" if few == 1 else "operators take"
    first, half = rows[0], float(_shares(table)[0]) / 2
    yield (
        "operators",
        f"{few} {takes} {share[few - 1]:.1f} % of the time of all {len(table)}: {names}. "
        f"If {_name(first['full_name'])} took half as long, {half:.1f} % of that time were saved: "
        f"{_remedy_of_operator(first)}.",
    )


def _remedy_of_operator(row: Mapping[str, Value]) -> str:
    if row["side"] == CPU:
        return _ON_THE_HOST
    return _LOWER_PRECISION if any(word in str(row["type"]).lower() for word in _MATRIX) else _FEWER_CALLS


def _conversions(tables: ProfileTables) -> _Advised:
    table = _computing(tables.operator_types)
    chosen = np.array([kind in CONVERSIONS for kind in table["type"].tolist()], np.bool_)
    shares = _shares(table)
    share = float(shares[chosen].sum()) if len(table) else 0.0
    if share < CONVERSION_PERCENT:
        return
    of_type: dict[str, tuple[float, int]] = {}
    columns = (table["type"][chosen].tolist(), shares[chosen].tolist(), table["count"][chosen].tolist())
    for kind, part, number in zip(*columns, strict=True):
        before, count = of_type.get(kind, (0.0, 0))  # one type may run on several sides
        of_type[kind] = before + part, count + number
    kinds = ", ".join(
        f"{_name(kind)} {part:.1f} % in {count} execution{'' if count == 1 else 's'}"
        for kind, (part, count) in of_type.items()
    )
    yield (
        "conversions",
        f"Changes of type and layout take {share:.1f} % of the operators' time: {kinds}. Keep neighbouring operators "
        "in one type and one layout, and let amp_level or a cast of the whole network replace single casts.",
    )


def _ai_cpu(tables: ProfileTables) -> _Advised:
    table = _computing(tables.operators)
    sides, names = table["side"].tolist(), table["full_name"].tolist()
    is_wait = [any(word in name.lower() for word in _WAITS) for name in names]
    chosen = np.array([side == AI_CPU and not waits for side, waits in zip(sides, is_wait, strict=True)], np.bool_)
    share = float(_shares(table)[chosen].sum()) if len(table) else 0.0
    if share < AI_CPU_PERCENT:
        return
    rows = table.take(chosen).records()
    largest = ", ".join(f"{_name(row['full_name'])} ({_times(row['count'])})" for row in rows[:FEW_OPERATORS])
    more = f" and {len(rows) - FEW_OPERATORS} more" if len(rows) > FEW_OPERATORS else ""
    yield (
        "AI CPU",
        f"{share:.1f} % of the operators' time is on AI CPU, which is much slower than the AI Core: {largest}{more}. "
        "Other data types (int32 for int64, float32 for float64) or other operators often run on the AI Core.",
    )


def _name(value: Value) -> str:
    return layout.name(str(value))


def _times(count: Value) -> str:
    return "once" if count == 1 else f"{count} times"


def _computing(table: Table) -> Table:
    """Return the rows that compute, in their order, most time first. Communication waits for others, too."""
    rows = zip(table["side"].tolist(), table["type"].tolist(), strict=True)
    return table.take(np.array([side != COMMUNICATION and not is_collective(kind) for side, kind in rows], np.bool_))


def _shares(table: Table) -> NDArray[np.float64]:
    """Return the share of each row in the time of all, in percent."""
    total = np.asarray(table["total_ns"], np.float64)
    whole = total.sum()
    shares: NDArray[np.float64] = 100 * total / whole if whole else total
    return shares
