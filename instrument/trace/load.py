"""`captures(files)` turns the raw files of a window into one `Capture` for each device.

Problem. A window is up to some hundred files in forty formats: those of the device, of the host, and files that three
generations of tools derived from them. Some repeat the same data on another clock. Any may be absent, cut off or
damaged, and some have gigabytes.

Strategy. Each format has a parser, a function of the bytes and of a `Losses`, in which it counts what it cannot read;
it knows nothing of other files and never raises for what they hold. `kinds` names a file's format by its name, `files`
says which files are one device's, and `_Loader` here hands them to their parsers, raw files before derived
ones. `assembly.Assembly` takes the first source of each part and brings all onto one axis of time. `completeness`
compares what is there with what should be.

Rejected: one class for each tool, each making a whole capture. A window often has files of several tools, and half of
the parts of each would come from elsewhere. Rejected as well: exceptions for damage. A trace is often damaged, and the
rest of it is still worth a table, as long as the amount that is missing stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np

from instrument.trace import ascend, ascend_outputs, clocks, completeness, cpu, gpu, marks, pipelines, tlv
from instrument.trace.assembly import DEVICE, EPOCH, MONOTONIC, Assembly, clock_of, shifted, sides_of
from instrument.trace.events import (
    CPU,
    GPU,
    MISSING,
    SPAN,
    SPAN_FRAMEWORK,
    Capture,
    Integers,
    NamedRows,
    OperatorRows,
    Problem,
    Rows,
)
from instrument.trace.files import Group, RawFiles, groups_of, without_slice
from instrument.trace.jsontext import mapping
from instrument.trace.kinds import ASCEND
from instrument.trace.text import LIMIT, Buffer, Losses, csv_devices
from instrument.trace.timeline import Timeline, merged_steps, timeline

T = TypeVar("T")

_GPU_KINDS = ("gpu_executions", "gpu_steps", "gpu_activities", "gpu_detail", "gpu_start", "get_next")
_ASCEND_KINDS = (
    ASCEND, "kernel_details", "op_summary", "op_statistic", "step_trace_time", "memory_record", "step_trace_raw",
    "task_time", "hccl", "step_trace", "msprof", "op_range", "memory_usage", "device_queue",
)  # fmt: skip
#: Timelines that complete each other; what one set of them tells is not taken from the next one again.
_TIMELINES = (("task_time", "hccl", "step_trace"), ("msprof",), ("trace_view",))


def captures(files: RawFiles | Mapping[str, Buffer | Sequence[Buffer]]) -> list[Capture]:
    """Return all that the raw files of a window say, one `Capture` for each device; none without any known file.

    `files` maps names to bytes or to the pieces of them. Executions are in order of their start, and each has the step
    that it started in, by the device's own steps or else by the marks of the host.
    """
    raw = (files if isinstance(files, RawFiles) else RawFiles(files)).without_slices()
    of_device = groups_of(raw)
    result = [_Loader(raw, group).capture() for group in of_device]
    for problem in reversed(raw.problems):
        place = _place_of(problem, of_device)
        if place < len(result):
            result[place] = replace(result[place], problems=(problem, *result[place].problems))
    return result


def _place_of(problem: Problem, of_device: Sequence[Group]) -> int:
    """Return the place of the device that the file of a problem belongs to; that of the first one if it is of none."""
    name = without_slice(problem.file)
    for place, group in enumerate(of_device):
        if any(name in names for names in group.files.values()):
            return place
    return 0


class _Loader:
    """Reads the files of one device into an `Assembly`."""

    def __init__(self, files: RawFiles, group: Group) -> None:
        self._files, self._group = files, group
        self._assembly = Assembly(group.device, _target(group))
        #: From the host's raw monotonic clock, which the device's tools print, to the wall clock.
        self._wall_ns: int | None = None
        #: Timeline -> how many events of which phase it has.
        self._phases: dict[str, dict[str, int]] = {}

    def capture(self) -> Capture:
        self._metadata()
        self._raw_ascend()
        self._device_tables()
        self._gpu()
        self._cpu()
        self._timelines()
        self._marks()
        self._op_ranges()
        self._pipelines()
        self._sums()
        self._assembly.problems += completeness.missing(self._files, self._group.files, self._parts)
        return self._assembly.capture()

    @property
    def _parts(self) -> Capture:
        return self._assembly.parts

    def _keep(self, problem: Problem) -> None:
        """Note what is not in the result, if it is anything."""
        if problem.amount:
            self._assembly.problems.append(problem)

    def _read(self, name: str, parse: Callable[[Buffer, Losses], T], /) -> T:
        """Return what `parse` finds in a file, and keep what it could not read."""
        losses = Losses(name)
        result = parse(self._files.joined(name), losses)
        self._assembly.problems += losses.problems()
        return result

    def _each(self, kind: str, parse: Callable[[Buffer, Losses], T]) -> Iterator[tuple[str, T]]:
        """Yield the name of each file of a kind, and what `parse` finds in it."""
        for name in self._group.files.get(kind, ()):
            yield name, self._read(name, parse)

    def _metadata(self) -> None:
        """Read the window first, as it says what all the others are."""
        metadata = self._assembly.metadata
        for _, window in self._each("window", mapping):
            metadata |= window
        for kind in ("profiler_info", "profiler_metadata"):
            for _, content in self._each(kind, mapping):
                metadata[kind] = content
        if metadata.get("target") in ("cpu", "ascend", "gpu"):
            self._assembly.parts = replace(self._parts, target=str(metadata["target"]))
        start, monotonic = metadata.get("start_ns"), metadata.get("start_monotonic_ns")
        if isinstance(start, int) and isinstance(monotonic, int) and 0 <= start < LIMIT and 0 <= monotonic < LIMIT:
            self._assembly.epoch_offset_ns = start - monotonic

    def _raw_ascend(self) -> None:
        names = self._group.files.get(ASCEND, [])
        if names:
            number = next(iter(self._group.numbers)) if len(self._group.numbers) == 1 else self._group.device
            self._assembly.take_capture(ascend.capture({name: self._files[name] for name in names}, number))
        for name in names:
            if name.rpartition("/")[2].startswith("start_info"):
                moment = clocks.moment(self._files.joined(name), Losses(name))
                if moment.epoch_us is not None and moment.monotonic_ns is not None:
                    self._wall_ns = moment.epoch_us * 1000 - moment.monotonic_ns

    def _device_tables(self) -> None:
        assembly = self._assembly
        for kind in ("kernel_details", "op_summary"):
            kernels = self._each(kind, self._of_device(ascend_outputs.kernel_details))
            for name, tasks in kernels if not len(self._parts.executions) else ():
                clock = clock_of(np.concatenate([tasks.executions["start_ns"], tasks.activities["start_ns"]]))
                assembly.add_executions(OperatorRows(tasks.operators, tasks.executions), clock, name)
                assembly.add_activities(OperatorRows(tasks.operators, tasks.activities), clock, name)
        traces = self._each("step_trace_raw", ascend_outputs.step_trace_raw)
        for name, trace in traces if not len(self._parts.steps) else ():
            assembly.add_steps(trace, DEVICE, name)
        for _, rows in self._each("step_trace_time", self._of_device(ascend_outputs.step_trace_time)):
            assembly.parts = replace(self._parts, overlap=np.concatenate([self._parts.overlap, rows]))
        self._memory("memory_record", self._of_device(ascend_outputs.memory_record))
        self._memory("memory_usage", self._of_device(tlv.memory_usage, tlv.devices))

    def _of_device(
        self,
        parse: Callable[[Buffer, Losses, int | None], T],
        devices_in: Callable[[Buffer], Set[int]] = csv_devices,
    ) -> Callable[[Buffer, Losses], T]:
        """Return the parser that takes of a table of several devices the rows of this one."""
        return lambda data, losses: parse(data, losses, self._group.device if len(devices_in(data)) > 1 else None)

    def _memory(self, kind: str, parse: Callable[[Buffer, Losses], Rows]) -> None:
        for name, samples in self._each(kind, parse) if not len(self._parts.memory) else ():
            if kind == "cpu_memory":
                self._undo_clock_changes(samples, "time_ns", name)
            self._assembly.add_memory(samples, clock_of(samples["time_ns"]), name)

    def _gpu(self) -> None:
        assembly = self._assembly
        for name, executions in self._each("gpu_executions", partial(cpu.executions, unit_ns=cpu.US, side=GPU)):
            executions = self._with_shapes(executions, "gpu_framework")
            assembly.add_executions(executions, _gpu_clock(executions.rows), name)
        launched_by: dict[str, str] = {}
        launches = 0
        for _, (operators, more) in self._each("gpu_kernels", gpu.launchers):
            launched_by |= operators
            launches += more
        for name, executions in self._each("gpu_activities", partial(gpu.activities, launched_by=launched_by)):
            what = "launches of kernels that are missing here, as gpu_activity_data counts them"
            self._keep(Problem(name, what, max(launches - len(executions.rows), 0)))
            assembly.add_activities(executions, _gpu_clock(executions.rows), name)
        for name, trace in self._each("gpu_steps", gpu.step_trace):
            assembly.add_steps(trace, _gpu_clock(trace.steps), name)
        for _, moment in self._each("gpu_start", gpu.start_time):
            assembly.metadata["gpu_start_time"] = moment

    def _cpu(self) -> None:
        for name, executions in self._each("cpu_executions", cpu.executions):
            executions = self._with_shapes(executions, "cpu_framework")
            self._undo_clock_changes(executions.rows, "start_ns", name)
            self._assembly.add_executions(executions, clock_of(executions.rows["start_ns"]), name)
        self._memory("cpu_memory", cpu.memory)

    def _with_shapes(self, executions: OperatorRows, kind: str) -> OperatorRows:
        def parse(data: Buffer, losses: Losses) -> OperatorRows:
            return cpu.with_shapes(executions, cpu.framework(data, losses), losses, has_all=kind == "cpu_framework")

        return next((shaped for _, shaped in self._each(kind, parse)), executions)

    def _undo_clock_changes(self, rows: Rows, name: str, file: str) -> None:
        """Bring times of the host's wall clock back onto the clock of the window's begin, in place."""
        metadata = self._assembly.metadata
        changes = marks.changes(metadata)
        start, stop = metadata.get("start_ns"), metadata.get("stop_ns")
        if not changes or not isinstance(start, int) or not isinstance(stop, int):
            return
        rows[name], is_uncertain = marks.undone(rows[name], changes, (start, stop))
        what = "settings of the host's clock while the window was open, which are taken out of its times"
        self._keep(Problem(file, what, len(changes)))
        what = "times beside a setting of the host's clock, which are not certain"
        self._keep(Problem(file, what, int(is_uncertain.sum())))

    def _timelines(self) -> None:
        """Read all that no better source told; of a CPU they only repeat what its own files say."""
        if self._parts.target == "cpu" and "cpu_executions" in self._group.files:
            return
        for kinds in _TIMELINES:
            wanted = self._wanted()
            timelines: dict[str, Timeline] = {}
            for kind in kinds:
                for name, timelines[name] in self._each(kind, timeline):
                    self._take_timeline(timelines[name], wanted, name)
            merged = merged_steps(list(timelines.values()))
            if "steps" in wanted and len(merged.steps):
                clock, offset_ns = self._axis_of(merged.steps["start_ns"])
                steps, reduces = (shifted(rows, offset_ns) for rows in (merged.steps, merged.reduces))
                self._assembly.add_steps(merged._replace(steps=steps, reduces=reduces), clock, next(iter(timelines)))

    def _wanted(self) -> set[str]:
        parts, sides = self._parts, sides_of(self._parts)
        wanted = {"host"} if CPU not in sides else set()
        wanted |= {"device"} if not sides - {CPU} else set()
        present = (("activities", parts.activities), ("spans", parts.spans), ("steps", parts.steps))
        wanted |= {name for name, rows in present if not len(rows)}
        return wanted | ({"overlap"} if not len(parts.overlap) else set())

    def _take_timeline(self, events: Timeline, wanted: set[str], name: str) -> None:
        assembly = self._assembly
        self._phases[name] = events.phases
        assembly.metadata["timeline_events"] = self._phases
        parts = (events.executions, events.activities, events.spans, events.overlap)
        clock, offset_ns = self._axis_of(np.concatenate([part["start_ns"] for part in parts]))
        executions, activities, spans, overlap = (shifted(part, offset_ns) for part in parts)
        is_host = np.array([operator.side == CPU for operator in events.operators] + [False], np.bool_)
        of_host = is_host[executions["operator"]]
        for what, rows in (("host", executions[of_host]), ("device", executions[~of_host])):
            if what in wanted:
                assembly.add_executions(OperatorRows(events.operators, rows), clock, name)
        if "activities" in wanted:
            assembly.add_activities(OperatorRows(events.operators, activities), clock, name)
        if "spans" in wanted:
            assembly.add_spans(NamedRows(events.names, spans), clock, name)
        if "overlap" in wanted:
            assembly.add_overlap(overlap, clock, name)

    def _axis_of(self, times: Integers) -> tuple[str, int]:
        """Return the clock of the times of a timeline, and by how much they have to be moved for that."""
        clock = clock_of(times)
        if clock != MONOTONIC or self._wall_ns is None:
            return clock, 0
        return EPOCH, self._wall_ns

    def _marks(self) -> None:
        names: list[str] = []
        for _, found_names in self._each("names", marks.names):
            names = found_names
        for name, marks_of_file in self._each("marks", partial(marks.marks, known=names)):
            spans = marks_of_file.rows[marks.within(marks_of_file.rows, self._assembly.metadata)]
            what = "marks outside of the window, whose times cannot be right"
            self._keep(Problem(name, what, len(marks_of_file.rows) - len(spans)))
            self._assembly.add_spans(marks_of_file._replace(rows=spans), EPOCH, name)

    def _op_ranges(self) -> None:
        for name, named_ranges in self._each("op_range", tlv.op_ranges):
            ranges, clock = named_ranges.rows, self._host_counter()
            if clock is None:
                self._keep(Problem(name, "ranges of the framework without a clock log that says when", len(ranges)))
                continue
            spans = np.empty(len(ranges), SPAN)
            spans["start_ns"] = clock.ns(ranges["start"])
            spans["duration_ns"] = clock.ns(ranges["end"]) - spans["start_ns"]
            spans["name"], spans["thread"] = ranges["name"], ranges["thread"]
            spans["kind"], spans["number"] = SPAN_FRAMEWORK, MISSING
            self._assembly.add_spans(NamedRows(named_ranges.names, spans), EPOCH, name)

    def _host_counter(self) -> clocks.Clock | None:
        """Return the clock that turns the counter of the host into time since the epoch."""
        logs = {name.rpartition("/")[2].split(".")[0]: name for name in self._group.files.get(ASCEND, ())}
        if "host_start" not in logs or self._wall_ns is None:
            return None
        host = clocks.start_log(self._files.joined(logs["host_start"]), Losses(logs["host_start"])).values
        if "cntvct" not in host or "clock_monotonic_raw" not in host:
            return None
        info = logs.get("info")
        khz = clocks.device_info(self._files.joined(info), Losses(info)).host_khz if info else None
        scale = clocks.Clock(khz=khz or clocks.DEFAULT_KHZ)
        offset = host["clock_monotonic_raw"] - scale.duration_ns(host["cntvct"]) + self._wall_ns
        return clocks.Clock(EPOCH, scale.khz, offset)

    def _pipelines(self) -> None:
        assembly = self._assembly
        recorded, problems = pipelines.recorded(self._group.files, self._read)
        assembly.problems += problems
        assembly.parts = replace(self._parts, pipeline=tuple(recorded.stages))
        if recorded.sampling_interval_ms is not None:
            assembly.metadata["pipeline_sampling_interval_ms"] = recorded.sampling_interval_ms
        if recorded.use is not None:
            assembly.metadata["processors"] = recorded.use.processors
            assembly.metadata["process_cpu_percent"] = recorded.use.process_percent
            assembly.metadata["machine"] = recorded.use.machine
        assembly.add_batches(recorded.batches, recorded.batches_file)
        missed = assembly.metadata.get("pipelines_not_recorded")
        if isinstance(missed, int):
            self._keep(
                Problem("window", "data pipelines that were made while another one was recorded", max(missed, 0))
            )
        for name, fetches in self._each("get_next", pipelines.fetches):
            assembly.add_fetches(fetches, _gpu_clock(fetches), name)

    def _sums(self) -> None:
        """Add the sums of the tools if there is nothing better; if there are executions, check their number."""
        of_gpu, of_ascend = partial(cpu.totals, side=GPU), self._of_device(ascend_outputs.op_statistic)
        sources = (
            ("cpu_detail", cpu.totals), ("gpu_detail", of_gpu), ("op_statistic", of_ascend),
            ("cpu_types", cpu.totals), ("gpu_types", of_gpu),
        )  # fmt: skip
        for kind, parse in sources:
            for name in self._group.files.get(kind, ()):
                if len(self._parts.executions):  # what the file itself lacks is then no loss
                    sums = parse(self._files.joined(name), Losses(name))
                    missing = completeness.lacking(self._group.files, self._parts, kind, sums, name)
                    self._assembly.problems += missing
                else:
                    self._assembly.add_totals(self._read(name, parse))


def _target(group: Group) -> str:
    """The kind of device, as far as the files tell."""
    if any(kind in group.files for kind in _GPU_KINDS):
        return "gpu"
    return "ascend" if any(kind in group.files for kind in _ASCEND_KINDS) else "cpu"


def _gpu_clock(rows: Rows) -> str:
    """Return the clock of a GPU: the wall clock, unless its values say that it is not."""
    return EPOCH if clock_of(rows["start_ns"]) == EPOCH else DEVICE
