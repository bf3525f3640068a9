"""The data pipeline: does the training wait for it, and which of its stages holds the others back?

The verdict comes from the wait that the consumer saw, never from how busy the pipeline is: one that never rests and yet
is always ahead costs nothing. Only then the stages are asked: the slow one has its input at hand and nothing in
its output queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from instrument.analyse.executions import window_of
from instrument.analyse.groupby import mask_missing
from instrument.analyse.intervals import far
from instrument.analyse.table import NOT_AVAILABLE, ColumnData, Table
from instrument.trace.events import MISSING, Capture, PipelineStage, Rows
from instrument.trace.pipelines import queued

NOT_INPUT_BOUND, SOMEWHAT, INPUT_BOUND = "not input-bound", "somewhat input-bound", "input-bound"
#: From which share of the time spent on waiting a training is called so: where TensorFlow's profiler draws its lines.
SOMEWHAT_PERCENT, BOUND_PERCENT = 5.0, 20.0
#: Up to here the time before the first operator of a step is launching it; MindInsight draws the same line.
INTERVAL_NS = 10**6
#: A stage holds the others back when its input is that much fuller than its output, in percent of the queues: half, as
#: MindInsight has it for the difference of the two, and for how full the queue of a source is.
HOLDS_BACK_PERCENT = 50.0
_FULL_PERCENT = 100.0
#: A queue that is no fuller than this on average, over this many samples, is no reserve; MindInsight has the same
#: share.
NEARLY_EMPTY_PERCENT, LEAST_SAMPLES = 10.0, 10
_MS = 10**6
#: With more time between batches, whole milliseconds are fine enough for shares of waiting.
_FINE_NS = 10 * _MS
_NOTHING = "n/a: the trace has no files of the data pipeline (data_process)."
_ONLY_BATCHES = "The stages are n/a: the trace has no pipeline_profiling file. What follows is by batches alone."


@dataclass(frozen=True)
class Verdict:
    """What the consumer of the pipeline saw. All but `kind` and `reason` may be None.

    `wait_percent` is the share of the time that it waited. `stage` is the one that holds the others back, and
    `reason` has the figures of both. `is_of_steps`: no queue was seen, only the time before the first operators.
    `near_miss` says why a training that is not input-bound soon may be. It is part of `reason`.
    """

    kind: str
    reason: str
    wait_percent: float | None = None
    stage: PipelineStage | None = None
    is_of_steps: bool = False
    near_miss: str = ""

    @property
    def is_waiting(self) -> bool:
        return self.kind in (SOMEWHAT, INPUT_BOUND)

    def __str__(self) -> str:
        return f"{self.kind}: {self.reason}"


# ---------------------------------------------------------------- tables


def stages(capture: Capture, waiting: Verdict) -> Table:
    """Tabulate the stages, from the consumer to the sources: workers, its output queue, its use of the processors.

    `queue_use_percent` is the mean of the samples by the capacity, `empty_percent` the share of samples of 0.
    `cpu_percent` is of all processors of the machine. `worker_cpu_percent` is of one processor, for each worker:
    cpu_percent * processors / workers. `cpu_ns` is what the stage used while it was sampled: cpu_percent / 100 *
    processors * samples * interval between them. What was not sampled is masked.
    """
    ordered = _ordered(capture.pipeline)
    columns: dict[str, ColumnData] = {
        "id": [stage.id for stage in ordered],
        "type": [stage.type for stage in ordered],
        "parent": mask_missing(np.array([stage.parent for stage in ordered], np.int64)),
        "workers": mask_missing(np.array([stage.workers for stage in ordered], np.int64)),
        "queue_capacity": mask_missing(np.array([stage.queue_capacity for stage in ordered], np.int64)),
        "samples": [len(stage.queue_sizes) for stage in ordered],
        "queue_mean": [_mean(stage.queue_sizes) for stage in ordered],
        "queue_use_percent": [_use(stage) for stage in ordered],
        "empty_percent": [_share(stage.queue_sizes, 0) for stage in ordered],
        "cpu_percent": [stage.cpu_percent for stage in ordered],
        "worker_cpu_percent": [_worker_use(stage, capture) for stage in ordered],
        "cpu_ns": [_cpu_ns(stage, capture) for stage in ordered],
    }
    notes = [str(waiting), *_on_times(capture), *_on_samples(capture)]
    if not ordered:
        notes = [_ONLY_BATCHES, *notes] if len(capture.batches) or len(capture.fetches) else [_NOTHING]
    return Table("pipeline", columns, "Stages of the data pipeline", notes)


def _on_times(capture: Capture) -> Iterator[str]:
    """Say that a share of waiting is rough where batches come faster than the resolution of their times."""
    rows = capture.batches[(capture.batches["time_ns"] > 0) & (capture.batches["pipeline_ns"] >= 0)]
    each_ns = int(np.ptp(rows["time_ns"])) / (len(rows) - 1) if len(rows) > 1 else _FINE_NS
    if each_ns < _FINE_NS and not (rows["pipeline_ns"] % _MS).any():
        yield (
            f"Times of batches are in whole milliseconds, and there is one every {each_ns / _MS:.1f} ms: how long the "
            "training waited for data is rough."
        )


def _on_samples(capture: Capture) -> Iterator[str]:
    """Say why no stage was sampled, if the window was too short for it."""
    interval_ms, window = capture.metadata.get("pipeline_sampling_interval_ms"), window_of(capture)
    is_told = isinstance(interval_ms, int) and interval_ms > 0 and window is not None
    if not is_told or any(stage.queue_sizes for stage in capture.pipeline):
        return
    yield (
        f"The stages were not sampled: that is done every {interval_ms} ms. Record a longer window, or sample more "
        "often: mindspore.dataset.config.set_monitor_sampling_interval(10) before the dataset is made."
    )


def batches(capture: Capture) -> Table:
    """Tabulate the batches: when each was there (the notes name the clock), its times, and what the queue held then."""
    rows = capture.batches
    names = ("batch", "time_ns", "pipeline_ns", "push_ns", "total_ns", "queue_size", "queue_capacity")
    columns = {name: mask_missing(rows[name]) for name in names}
    notes = [f"Times are of the clock {capture.metadata.get('batches_clock', capture.clock)}."]
    if distant := int(far(rows["time_ns"], rows["time_ns"]).sum()):
        notes.append(f"{distant} batches are far away from all others in time, and do not count in shares of waiting.")
    return Table("batches", columns, "Batches", notes if len(rows) else [_NOTHING])


def queues(capture: Capture) -> Table:
    """Tabulate the consumer's queues: samples, how many of them found it empty and full, and the mean times."""
    rows = []
    if len(capture.fetches):
        rows.append(("device takes from its queue", *_sizes(capture.fetches), _mean_ns(capture.fetches, "duration_ns")))
    if len(capture.batches):
        wait = _mean_ns(capture.batches, "pipeline_ns")
        rows.append(("pipeline gives a batch", *_sizes(capture.batches), wait))
    heads = ("what", "samples", "empty", "full", "empty_percent", "mean_wait_ns")
    return Table.of_rows("data_queues", heads, rows, "Queues of data", [] if rows else [_NOTHING])


def _sizes(rows: Rows) -> tuple[int, int, int | None, float | None]:
    sampled = rows[rows["queue_size"] != MISSING]
    empty = int((sampled["queue_size"] == 0).sum())
    full = None
    if "queue_capacity" in (rows.dtype.names or ()) and (sampled["queue_capacity"] > 0).any():
        full = int(((sampled["queue_size"] >= sampled["queue_capacity"]) & (sampled["queue_capacity"] > 0)).sum())
    return len(sampled), empty, full, 100 * empty / len(sampled) if len(sampled) else None


def _mean_ns(rows: Rows, column: str) -> float | None:
    times = rows[column][rows[column] >= 0]
    return float(times.mean()) if len(times) else None


def _ordered(stages: Sequence[PipelineStage]) -> list[PipelineStage]:
    """Order stages breadth first from the consumer. Those that a damaged tree does not reach come last."""
    by_id = {stage.id: stage for stage in stages}
    pending = [stage.id for stage in stages if stage.parent == MISSING]
    seen = set(pending)
    for identity in pending:
        children = [child for child in by_id[identity].children if child in by_id and child not in seen]
        seen.update(children)
        pending += dict.fromkeys(children)
    return [by_id[identity] for identity in pending] + [stage for stage in stages if stage.id not in seen]


def _mean(values: Sequence[float]) -> float | None:
    return float(np.mean(values)) if values else None


def _share(values: Sequence[float], wanted: float) -> float | None:
    return 100 * sum(value == wanted for value in values) / len(values) if values else None


def _use(stage: PipelineStage) -> float | None:
    """Return how full the output queue is on average, in percent, or None for a stage without samples of it."""
    mean = _mean(stage.queue_sizes)
    return None if mean is None or stage.queue_capacity <= 0 else min(100 * mean / stage.queue_capacity, _FULL_PERCENT)


def processors(capture: Capture) -> int | None:
    """Return the number of processors of the machine, or None if the trace does not say."""
    count = capture.metadata.get("processors")
    return count if isinstance(count, int) and count > 0 else None


def _worker_use(stage: PipelineStage, capture: Capture) -> float | None:
    count = processors(capture)
    if stage.cpu_percent is None or count is None or stage.workers <= 0:
        return None
    return stage.cpu_percent * count / stage.workers


def _cpu_ns(stage: PipelineStage, capture: Capture) -> int | None:
    count, interval = processors(capture), capture.metadata.get("pipeline_sampling_interval_ms")
    if stage.cpu_percent is None or count is None or not isinstance(interval, int) or interval <= 0:
        return None
    return round(stage.cpu_percent / 100 * count * len(stage.queue_sizes) * interval * 10**6)


# ---------------------------------------------------------------- the verdict


@dataclass(frozen=True)
class _Wait:
    percent: float
    words: str
    is_of_steps: bool = False


def verdict(capture: Capture, steps: Table) -> Verdict:
    """Decide whether the training waits for data, and for which stage. `steps` is what `steps.per_step` made.

    Several sources tell how long the consumer waited. In the order of how well they do: the time that the device waited
    for its queue, on the host that of the iterator, the time before the first forward operator of each step while the
    queue was empty at times, the time that the feeder of the device's queue waited for the pipeline, and the share of
    samples in which the queue nearest to the consumer was empty.
    """
    wait = next(filter(None, _waits(capture, steps)), None)
    if wait is None:
        has_any = len(capture.pipeline) or len(capture.batches) or len(capture.fetches)
        reason = "the trace does not say what the consumer of the data waited for" if has_any else _NOTHING[5:-1]
        return Verdict(NOT_AVAILABLE, f"{reason}.")
    stage, why = _slowest(capture.pipeline)
    if wait.percent < SOMEWHAT_PERCENT:
        near = _near_miss(capture, wait)
        reason = f"{wait.words}. {near}" if near else f"{wait.words}."
        return Verdict(NOT_INPUT_BOUND, reason, wait.percent, stage if near else None, wait.is_of_steps, near)
    kind = INPUT_BOUND if wait.percent >= BOUND_PERCENT else SOMEWHAT
    reason = f"{wait.words}; {why}." if why else f"{wait.words}."
    return Verdict(kind, reason, wait.percent, stage, wait.is_of_steps)


def _near_miss(capture: Capture, wait: _Wait) -> str:
    """Say that the pipeline is hardly ahead: by its nearly empty queue, or by a wait just below the limit."""
    rows = capture.batches[(capture.batches["queue_size"] >= 0) & (capture.batches["queue_capacity"] > 0)]
    use = held = None
    if len(rows) >= LEAST_SAMPLES:
        use = 100 * float((rows["queue_size"] / rows["queue_capacity"]).mean())
        held = f"its queue held {rows['queue_size'].mean():.1f} of {int(rows['queue_capacity'].max())} on average"
    elif (root := next(iter(queued(capture.pipeline)), None)) is not None and len(root.queue_sizes) >= LEAST_SAMPLES:
        use = _use(root)
        held = f"the queue of {name_of(root)} held {_mean(root.queue_sizes):.1f} of {root.queue_capacity} on average"
    if use is not None and use <= NEARLY_EMPTY_PERCENT:
        return f"The pipeline is hardly ahead: {held}. With a little more work for a row the training will wait."
    if wait.percent >= SOMEWHAT_PERCENT / 2:
        return f"That is just below the {SOMEWHAT_PERCENT:.0f} % from which a training is called input-bound."
    return ""


def _waits(capture: Capture, steps: Table) -> Iterator[_Wait | None]:
    """Yield what each source says about the wait, the best source first; None where it says nothing."""
    yield _of_fetches(capture, steps)
    yield _of_batches(capture, "the training loop") if capture.target == "cpu" else None
    yield _of_intervals(capture, steps)
    yield _of_batches(capture, "the feeder of the device's queue")
    yield _of_root(capture)


def _percent(wait_ns: float, whole_ns: float) -> float:
    return min(100 * wait_ns / whole_ns, 100.0)


def _of_fetches(capture: Capture, steps: Table) -> _Wait | None:
    """Measure the device's own wait: the time of fetches with an empty or unknown queue, by that of the steps."""
    rows = capture.fetches[(capture.fetches["duration_ns"] >= 0) & (capture.fetches["start_ns"] > 0)]
    begin, whole = _span_of_steps(steps)
    within = (rows["start_ns"] >= begin) & (rows["start_ns"] < begin + whole)
    if whole and within.any():
        rows = rows[within]
    elif len(rows) > 1:
        whole = int((rows["start_ns"] + rows["duration_ns"]).max() - rows["start_ns"].min())
    else:
        return None
    waited = rows[rows["queue_size"] <= 0]
    samples = int((rows["queue_size"] != MISSING).sum())
    empty = int((waited["queue_size"] == 0).sum())
    percent = _percent(int(waited["duration_ns"].sum()), whole) if whole else 0.0
    queue = f", and found its queue empty {empty} of {samples} times" if samples else ""
    return _Wait(percent, f"the device waited for data {percent:.1f} % of the time{queue}")


def _span_of_steps(steps: Table) -> tuple[int, int]:
    """Return when the first step begins, and the time until the last one ends, 0 for both without steps."""
    begin, length, _ = steps.known("start_ns", "total_ns", "step")
    if not len(begin):
        return 0, 0
    return int(begin.min()), int((begin + length).max() - begin.min())


def _of_batches(capture: Capture, who: str) -> _Wait | None:
    """Measure the time in the pipeline of batches that found its queue empty, by that from first to last batch.

    On the host the training loop itself is the consumer.
    """
    rows = capture.batches[(capture.batches["time_ns"] > 0) & (capture.batches["pipeline_ns"] >= 0)]
    rows = rows[~far(rows["time_ns"], rows["time_ns"])]
    if len(rows) < 2:
        return None
    # the first batch was under way before its time, which is when it was there
    whole = int(rows["time_ns"].max() - rows["time_ns"].min()) + int(rows["total_ns"][0].clip(0))
    waited = rows[rows["queue_size"] <= 0]
    if not whole:
        return None
    percent = _percent(int(waited["pipeline_ns"].sum()), whole)
    empty, samples = int((waited["queue_size"] == 0).sum()), int((rows["queue_size"] != MISSING).sum())
    queue = f"; the queue was empty for {empty} of {samples} batches" if samples else ""
    return _Wait(percent, f"{who} waited for data {percent:.1f} % of the time{queue}")


def _of_intervals(capture: Capture, steps: Table) -> _Wait | None:
    """Measure the time before the first forward operator. No wait where the device's queue never was empty."""
    intervals, totals = steps.known("iteration_interval_ns", "total_ns")
    samples, empty, _, share = _sizes(capture.batches)
    whole = int(totals.sum())
    if not whole:
        return None
    if samples and not empty:
        return _Wait(0.0, f"the device's queue was never empty in {samples} samples")
    waited = int(intervals.sum())
    each = waited / len(intervals)
    if each <= INTERVAL_NS:
        words = f"steps begin their first operator after {each / 10**6:.3f} ms on average, which is launching"
        return _Wait(0.0, words, not samples)
    percent = _percent(waited, whole)
    queue = f", and the queue was empty in {share:.1f} % of {samples} samples" if samples else ""
    return _Wait(percent, f"{percent:.1f} % of the steps' time passed before their first operator{queue}", not samples)


def _of_root(capture: Capture) -> _Wait | None:
    """Count how often the queue nearest to the consumer was empty."""
    root = next(iter(queued(capture.pipeline)), None)
    share = _share(root.queue_sizes, 0) if root is not None else None
    if root is None or share is None:
        return None
    words = f"the queue of {name_of(root)}, nearest to the consumer, was empty in {share:.1f} % of"
    return _Wait(share, f"{words} {len(root.queue_sizes)} samples")


# ---------------------------------------------------------------- the stage that holds the others back


def name_of(stage: PipelineStage) -> str:
    """Return a stage as a sentence names it."""
    return f"{stage.type} ({stage.id})"


def _slowest(stages: Sequence[PipelineStage]) -> tuple[PipelineStage | None, str]:
    """Return the stage whose input is the fullest against its output, and the figures, or None if none stands out."""
    tree = queued(stages)
    if len(tree) == 1:
        return tree[0], f"{name_of(tree[0])} is its only stage with a queue"
    by_id = {stage.id: stage for stage in tree}
    best, rise, words = None, HOLDS_BACK_PERCENT, ""
    for stage in reversed(tree):  # of equal ones that nearest to the source: what follows it cannot be faster
        output = _use(stage) if stage.queue_capacity > 0 else 0.0  # without a queue it works when it is asked
        inputs = [use for child in stage.children if (use := _use(by_id[child])) is not None]
        if output is None or (stage.children and not inputs):
            continue
        given = min(inputs, default=_FULL_PERCENT)
        if given - output > rise or (best is None and given - output == rise):
            best, rise = stage, given - output
            source = f"its input is {given:.0f} % full" if inputs else "it is a source"
            words = f"{name_of(stage)} holds the others back: {source}, its output {output:.0f} % full"
    return best, words or ("no stage stands out by its queues" if tree else "")
