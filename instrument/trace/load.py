"""The raw files of a window -> one `Capture` for each device.

Each file goes by its name to its parser, raw files before what tools made of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from instrument.trace import (
    ascend,
    ascend_outputs,
    clock_changes,
    clocks,
    completeness,
    cpu,
    csvtext,
    gpu,
    jsontext,
    marks,
    minddata,
    pipelines,
    tlv,
)
from instrument.trace.assembly import DEVICE, EPOCH, MONOTONIC, Assembly, clock_of, shifted
from instrument.trace.events import CPU, MISSING, SPAN, SPAN_FRAMEWORK, Capture, Integers, Problem, Rows
from instrument.trace.files import RawFiles, without_slice
from instrument.trace.grouping import Group, groups_of
from instrument.trace.kinds import ASCEND
from instrument.trace.text import Buffer, Losses
from instrument.trace.timeline import Timeline, merged_steps, timeline

_GPU_KINDS = ("gpu_executions", "gpu_steps", "gpu_activities", "gpu_detail", "gpu_start", "get_next")
_ASCEND_KINDS = (
    ASCEND, "kernel_details", "op_summary", "op_statistic", "step_trace_time", "memory_record", "step_trace_raw",
    "task_time", "hccl", "step_trace", "msprof", "op_range", "memory_usage", "device_queue",
)  # fmt: skip
#: Timelines that complete each other; what one set of them tells is not taken from the next one again.
_TIMELINES = (("task_time", "hccl", "step_trace"), ("msprof",), ("trace_view",))


def captures(files: Mapping[str, Any]) -> list[Capture]:
    """All that the raw files of a window say, one `Capture` for each device; none without any file that is known.

    `files` is a `RawFiles`, or any mapping of names to bytes or to the pieces of them. Executions are in order of
    their start, and each has the step that it started in, by the device's own steps or else by the marks of the host.
    """
    raw = (files if isinstance(files, RawFiles) else RawFiles(files)).without_slices()
    of_device = groups_of(raw)
    found = [_Loader(raw, group).capture() for group in of_device]
    for problem in reversed(raw.problems):
        place = _place_of(problem, of_device)
        if place < len(found):
            found[place] = replace(found[place], problems=(problem, *found[place].problems))
    return found


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
        self._parts = Assembly(group.device, _target(group))
        #: From the host's raw monotonic clock, which the device's tools print, to the wall clock.
        self._wall_ns: int | None = None

    def capture(self) -> Capture:
        self._metadata()
        self._raw_ascend()
        self._device_tables()
        self._gpu()
        self._cpu()
        self._timelines()
        self._marks()
        self._op_ranges()
        self._minddata()
        self._sums()
        self._keep(completeness.missing(self._files, self._group.files, self._parts))
        return self._parts.capture()

    def _each(self, *kinds: str) -> Iterator[tuple[str, Buffer]]:
        for kind in kinds:
            for name in self._group.files.get(kind, ()):
                yield name, self._files.joined(name)

    def _keep(self, problems: Sequence[Problem]) -> None:
        self._parts.problems += problems

    def _metadata(self) -> None:
        """The window first, as it says what all the others are."""
        for name, data in self._each("window"):
            found, problems = marks.window(data, name)
            self._parts.metadata |= found
            self._keep(problems)
        for kind in ("profiler_info", "profiler_metadata"):
            for name, data in self._each(kind):
                losses = Losses(name)
                self._parts.metadata[kind] = jsontext.mapping(data, losses)
                self._keep(losses.problems())
        told = self._parts.metadata
        if told.get("target") in ("cpu", "ascend", "gpu"):
            self._parts.target = str(told["target"])
        anchor = [told.get("start_ns"), told.get("start_monotonic_ns")]
        if all(isinstance(time, int) and 0 <= time < 2**62 for time in anchor):
            self._parts.epoch_offset_ns = int(told["start_ns"]) - int(told["start_monotonic_ns"])

    def _raw_ascend(self) -> None:
        names = self._group.files.get(ASCEND, [])
        if names:
            number = next(iter(self._group.numbers)) if len(self._group.numbers) == 1 else self._group.device
            self._parts.take_capture(ascend.capture({name: self._files[name] for name in names}, number))
        for name in names:
            if name.rpartition("/")[2].startswith("start_info"):
                moment = clocks.moment(self._files.joined(name), Losses(name))
                if moment.epoch_us is not None and moment.monotonic_ns is not None:
                    self._wall_ns = moment.epoch_us * 1000 - moment.monotonic_ns

    def _device_tables(self) -> None:
        parts = self._parts
        for kind in ("kernel_details", "op_summary"):
            has_any = len(parts.executions) > 0
            for name, data in self._each(kind) if not has_any else ():
                found = ascend_outputs.kernel_details(data, name, self._one_of_several(data))
                self._keep(found.problems)
                clock = clock_of(np.concatenate([found.executions["start_ns"], found.activities["start_ns"]]))
                parts.add_executions(found.operators, found.executions, clock, name)
                parts.add_activities(found.operators, found.activities, clock, name)
        for name, data in self._each("step_trace_raw") if not parts.has_steps() else ():
            trace = ascend_outputs.step_trace_raw(data, name)
            self._keep(trace.problems)
            parts.add_steps(trace.names, trace.steps, trace.reduces, DEVICE, name)
        for name, data in self._each("step_trace_time"):
            overlap = ascend_outputs.step_trace_time(data, name, self._one_of_several(data))
            self._keep(overlap.problems)
            parts.overlap = np.concatenate([parts.overlap, overlap.rows])
        self._memory("memory_record", self._record)
        self._memory("memory_usage", self._usage)

    def _statistic(self, data: Buffer, file: str) -> cpu.Totals:
        return ascend_outputs.op_statistic(data, file, self._one_of_several(data))

    def _record(self, data: Buffer, file: str) -> cpu.Memory:
        return ascend_outputs.memory_record(data, file, self._one_of_several(data))

    def _usage(self, data: Buffer, file: str) -> cpu.Memory:
        return tlv.memory_usage(data, file, self._one_of_several(data, tlv.devices))

    def _one_of_several(self, data: Buffer, devices_in: Callable[[Buffer], Set[int]] = csvtext.devices) -> int | None:
        """Return which device's rows of a table are wanted, None where all of them are of one."""
        return self._group.device if len(devices_in(data)) > 1 else None

    def _memory(self, kind: str, parse: Callable[[Buffer, str], cpu.Memory]) -> None:
        for name, data in self._each(kind) if not len(self._parts.memory) else ():
            found = parse(data, name)
            self._keep(found.problems)
            if kind == "cpu_memory":
                self._undo_clock_changes(found.samples, "time_ns", name)
            self._parts.add_memory(found.samples, clock_of(found.samples["time_ns"]), name)

    def _gpu(self) -> None:
        parts = self._parts
        for name, data in self._each("gpu_executions"):
            found = self._with_shapes(gpu.executions(data, name), "gpu_framework")
            self._keep(found.problems)
            parts.add_executions(found.operators, found.executions, _gpu_clock(found.executions), name)
        launched_by: dict[str, str] = {}
        launches = 0
        for name, data in self._each("gpu_kernels"):
            more = gpu.launchers(data, name)
            launched_by |= more.operators
            launches += more.launches
            self._keep(more.problems)
        for name, data in self._each("gpu_activities"):
            found = gpu.activities(data, name, launched_by)
            self._keep(found.problems)
            if len(found.executions) < launches:
                what = "launches of kernels that are missing here, as gpu_activity_data counts them"
                self._keep([Problem(name, what, launches - len(found.executions))])
            parts.add_activities(found.operators, found.executions, _gpu_clock(found.executions), name)
        for name, data in self._each("gpu_steps"):
            trace = gpu.step_trace(data, name)
            self._keep(trace.problems)
            parts.add_steps(trace.names, trace.steps, trace.reduces, _gpu_clock(trace.steps), name)
        for name, data in self._each("gpu_start"):
            parts.metadata["gpu_start_time"], problems = gpu.start_time(data, name)
            self._keep(problems)

    def _cpu(self) -> None:
        for name, data in self._each("cpu_executions"):
            found = self._with_shapes(cpu.executions(data, name), "cpu_framework")
            self._keep(found.problems)
            self._undo_clock_changes(found.executions, "start_ns", name)
            clock = clock_of(found.executions["start_ns"])
            self._parts.add_executions(found.operators, found.executions, clock, name)
        self._memory("cpu_memory", cpu.memory)

    def _undo_clock_changes(self, rows: Rows, name: str, file: str) -> None:
        """Bring times of the host's wall clock back onto the clock of the window's begin, in place."""
        told = self._parts.metadata
        known = clock_changes.changes(told)
        start, stop = told.get("start_ns"), told.get("stop_ns")
        if not known or not isinstance(start, int) or not isinstance(stop, int):
            return
        rows[name], is_uncertain = clock_changes.undone(rows[name], known, (start, stop))
        what = "settings of the host's clock while the window was open, which are taken out of its times"
        self._keep([Problem(file, what, len(known))])
        if count := int(is_uncertain.sum()):
            self._keep([Problem(file, "times beside a setting of the host's clock, which are not certain", count)])

    def _with_shapes(self, found: cpu.Executions, kind: str) -> cpu.Executions:
        for name, data in self._each(kind):
            return cpu.with_shapes(found, cpu.framework(data, name), has_all=kind == "cpu_framework")
        return found

    def _timelines(self) -> None:
        """All that no better source told; of a CPU they only repeat what its own files say."""
        if self._parts.target == "cpu" and "cpu_executions" in self._group.files:
            return
        for kinds in _TIMELINES:
            wanted = self._wanted()
            found = {name: timeline(data, name) for name, data in self._each(*kinds)}
            for name, one in found.items():
                self._keep(one.problems)
                self._take_timeline(one, wanted, name)
            names, steps, reduces = merged_steps(list(found.values()))
            if "steps" in wanted and len(steps):
                clock, move = self._axis_of(steps["start_ns"])
                self._parts.add_steps(names, move(steps), move(reduces), clock, next(iter(found)))

    def _wanted(self) -> set[str]:
        parts = self._parts
        sides = {parts.operators[row].side for row in np.unique(parts.executions["operator"]).tolist()}
        wanted = {"host"} if CPU not in sides else set()
        wanted |= {"device"} if not sides - {CPU} else set()
        told = (("activities", parts.activities), ("spans", parts.spans), ("steps", parts.steps))
        wanted |= {name for name, rows in told if not len(rows)}
        return wanted | ({"overlap"} if not len(parts.overlap) else set())

    def _take_timeline(self, found: Timeline, wanted: set[str], name: str) -> None:
        parts = self._parts
        parts.metadata.setdefault("timeline_events", {})[name] = found.phases
        rows = (found.executions, found.activities, found.spans, found.overlap)
        clock, move = self._axis_of(np.concatenate([part["start_ns"] for part in rows]))
        is_host = np.array([operator.side == CPU for operator in found.operators] + [False], np.bool_)
        of_host = is_host[found.executions["operator"]]
        for what, rows in (("host", found.executions[of_host]), ("device", found.executions[~of_host])):
            if what in wanted:
                parts.add_executions(found.operators, move(rows), clock, name)
        if "activities" in wanted:
            parts.add_activities(found.operators, move(found.activities), clock, name)
        if "spans" in wanted:
            parts.add_spans(found.names, move(found.spans), clock, name)
        if "overlap" in wanted:
            parts.add_overlap(move(found.overlap), clock, name)

    def _axis_of(self, times: Integers) -> tuple[str, Any]:
        """The clock of the times of a timeline, once they are moved as the second value does."""
        clock = clock_of(times)
        if clock != MONOTONIC or self._wall_ns is None:
            return clock, lambda part: part
        offset = self._wall_ns
        return EPOCH, lambda part: shifted(part, offset)

    def _marks(self) -> None:
        names: list[str] = []
        for name, data in self._each("names"):
            names, problems = marks.names(data, name)
            self._keep(problems)
        for name, data in self._each("marks"):
            found = marks.marks(data, name, names)
            self._keep(found.problems)
            spans = found.spans[marks.within(found.spans, self._parts.metadata)]
            if outside := len(found.spans) - len(spans):
                self._keep([Problem(name, "marks outside of the window, whose times cannot be right", outside)])
            self._parts.add_spans(found.names, spans, EPOCH, name)

    def _op_ranges(self) -> None:
        for name, data in self._each("op_range"):
            found = tlv.op_ranges(data, name)
            self._keep(found.problems)
            clock = self._host_counter()
            if clock is None:
                problem = Problem(name, "ranges of the framework without a clock log that says when", len(found.ranges))
                self._keep([problem] if len(found.ranges) else [])
                continue
            spans = np.empty(len(found.ranges), SPAN)
            spans["start_ns"] = clock.ns(found.ranges["start"])
            spans["duration_ns"] = clock.ns(found.ranges["end"]) - spans["start_ns"]
            spans["name"], spans["thread"] = found.ranges["name"], found.ranges["thread"]
            spans["kind"], spans["number"] = SPAN_FRAMEWORK, MISSING
            self._parts.add_spans(found.names, spans, EPOCH, name)

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

    def _minddata(self) -> None:
        parts = self._parts
        found = pipelines.recorded(self._group.files, self._files.joined)
        self._keep(found.problems)
        parts.pipeline = found.stages
        if found.sampling_interval_ms is not None:
            parts.metadata["pipeline_sampling_interval_ms"] = found.sampling_interval_ms
        if found.use is not None:
            parts.metadata["processors"] = found.use.processors
            parts.metadata["process_cpu_percent"] = found.use.process_percent
            parts.metadata["machine"] = found.use.machine
        if len(found.batches):
            parts.add_batches(found.batches, found.batches_file)
        missed = parts.metadata.get("pipelines_not_recorded")
        if isinstance(missed, int) and missed > 0:
            self._keep([Problem("window", "data pipelines that were made while another one was recorded", missed)])
        for name, data in self._each("get_next"):
            fetches = minddata.fetches(data, name)
            self._keep(fetches.problems)
            if parts.fits(_gpu_clock(fetches.fetches), name, "fetches", len(fetches.fetches)):
                parts.fetches = fetches.fetches

    def _sums(self) -> None:
        """Add the sums of the tools if there is nothing better; if there are executions, check their number."""
        sources = (
            ("cpu_detail", cpu.totals), ("gpu_detail", gpu.totals), ("op_statistic", self._statistic),
            ("cpu_types", cpu.totals), ("gpu_types", gpu.totals),
        )  # fmt: skip
        for kind, parse in sources:
            for name, data in self._each(kind):
                found = parse(data, name)
                if len(self._parts.executions):
                    self._keep(completeness.lacking(self._group.files, self._parts, kind, found, name))
                else:
                    self._keep(found.problems)
                    self._parts.add_totals(found.operators, found.totals)


def _target(group: Group) -> str:
    """The kind of device, as far as the files tell."""
    if any(kind in group.files for kind in _GPU_KINDS):
        return "gpu"
    return "ascend" if any(kind in group.files for kind in _ASCEND_KINDS) else "cpu"


def _gpu_clock(rows: Rows) -> str:
    """A GPU's clock is the wall clock, unless its values say that it is not."""
    return EPOCH if clock_of(rows["start_ns"]) == EPOCH else DEVICE
