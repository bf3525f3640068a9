"""The data pipelines of a window as one: those of one form, one after the other, as of a loop that makes an iterator
for each epoch, go on where the one before ended. What is of another form, as of an evaluation, is left out and counted.

The first one's files lie in the folder of the window, further ones' in `pipeline_1`, `pipeline_2`, ... below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from instrument.trace import minddata
from instrument.trace.events import BATCH, PipelineStage, Problem, Rows
from instrument.trace.text import Buffer

_FOLDER = re.compile(r"(?:.*/)?pipeline_(\d{1,9})/[^/]*", re.ASCII)
_STAGES = (("pipeline", minddata.pipeline), ("pipeline_table", minddata.pipeline_table))
#: Without a queue of the device, what the iterator saw.
_BATCHES = ("device_queue", "iterator")
KINDS = ("pipeline", "pipeline_table", "cpu_use", *_BATCHES)

Read = Callable[[str], "Buffer"]


@dataclass(eq=False)
class Recorded:
    """What the files of one pipeline say, or those of several as one; `batches` (dtype BATCH) are of `batches_file`."""

    stages: list[PipelineStage] = field(default_factory=list)
    sampling_interval_ms: int | None = None
    use: minddata.CpuUse | None = None
    batches: Rows = field(default_factory=lambda: np.empty(0, BATCH))
    batches_file: str = ""
    problems: list[Problem] = field(default_factory=list)

    @property
    def form(self) -> list[tuple[object, ...]]:
        """Return what does not change from epoch to epoch."""
        return [(one.id, one.type, one.workers, one.parent, one.children, one.queue_capacity) for one in self.stages]


def recorded(files: Mapping[str, Sequence[str]], read: Read) -> Recorded:
    """The pipeline of `files` (kind -> names); `read` gives the bytes of a file."""
    numbered: dict[int, dict[str, list[str]]] = {}
    for kind in KINDS:
        for name in files.get(kind, ()):
            match = _FOLDER.fullmatch(name)
            numbered.setdefault(int(match[1]) if match else 0, {}).setdefault(kind, []).append(name)
    return _joined([_one(numbered[number], read) for number in sorted(numbered)])


def _one(files: Mapping[str, Sequence[str]], read: Read) -> Recorded:
    found = Recorded()
    for kind, parse in _STAGES:
        for name in files.get(kind, ()) if not found.stages else ():
            pipeline = parse(read(name), name)
            found.problems += pipeline.problems
            found.stages, found.sampling_interval_ms = pipeline.stages, pipeline.sampling_interval_ms
    for name in files.get("cpu_use", ()):
        found.use = minddata.cpu_utilization(read(name), name)
        found.problems += found.use.problems
        found.stages = minddata.with_cpu_use(found.stages, found.use.stages)
    for name in (name for kind in _BATCHES for name in files.get(kind, ())):
        if not len(found.batches):
            batches = minddata.batches(read(name), name)
            found.problems += batches.problems
            found.batches, found.batches_file = batches.batches, name
    return found


def _joined(found: Sequence[Recorded]) -> Recorded:
    kept = next((one for one in found if one.stages), found[0] if found else Recorded())
    alike = [one for one in found if one.form == kept.form]
    problems = [problem for one in found for problem in one.problems]
    problems += [
        Problem(one.batches_file or "data pipeline", "batches of a pipeline of another form", len(one.batches))
        for one in found
        if one.form != kept.form
    ]
    stages = [_stage(of_each) for of_each in zip(*(one.stages for one in alike), strict=True)]
    batches = np.concatenate([kept.batches[:0], *(one.batches for one in alike)])
    return replace(kept, stages=stages, batches=batches, problems=problems)


def _stage(of_each: Sequence[PipelineStage]) -> PipelineStage:
    """One stage in each of several pipelines as one."""
    sizes = tuple(size for one in of_each for size in one.queue_sizes)
    return replace(of_each[0], queue_sizes=sizes, cpu_percent=_mean(list(_uses(of_each))))


def _uses(of_each: Sequence[PipelineStage]) -> Iterator[tuple[float, int]]:
    """The use of the processors of each, and how many samples stand behind it."""
    return ((one.cpu_percent, max(len(one.queue_sizes), 1)) for one in of_each if one.cpu_percent is not None)


def _mean(uses: Sequence[tuple[float, int]]) -> float | None:
    return sum(use * count for use, count in uses) / sum(count for _, count in uses) if uses else None
