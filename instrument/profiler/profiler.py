"""`Profiler`: record windows of a training from a hand-written loop, and explain them.

Problem. MindSpore's interface to its profiler changes from version to version, and many users know torch's. Each has
options without effect on some device, and raw files that only its own tools read, after an analysis that takes time and
may fail. An exception in the middle of a training costs more than a profile is worth.

Strategy. This class has MindSpore's arguments and names, and torch's methods beside them (`schedule`, `step`,
`key_averages`, `export_chrome_trace`, `on_trace_ready`). It only translates: each call becomes a request to its
`Recorder`, which looks the answer up in the transition table of `control`. The recorder opens a window through the
backend of the device (`backends`), closes it, and copies its raw files into the trace event file (`archive`). No raw
file is parsed while a training runs. `analyse` reads the event file when a user asks.

Rejected: MindSpore's public profiler on every device. It analyses each window itself when the window ends, while the
training waits. The CPU has a raw profiler of operators, which is used instead where MindSpore was built with it.

`StopAtStep` and `StopAtEpoch` in `callbacks` are the same for `model.train`: they hold a `Profiler` that does not start
by itself.
"""

from __future__ import annotations

import logging
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from types import TracebackType
from typing import TYPE_CHECKING

from instrument import framework
from instrument.checks import check_directory
from instrument.profiler.control import ProfilerState, Request
from instrument.profiler.options import (
    OPTIONS,
    AicoreMetrics,
    ExportType,
    ProfilerLevel,
    check_callable,
    check_output_directory,
    check_steps,
    from_arguments,
)
from instrument.profiler.recorder import Recorder
from instrument.profiler.schedule import ProfilerAction, Schedule, action_of
from instrument.profiler.window import WindowRange

if TYPE_CHECKING:
    from instrument.analyse.operators import KeyAverages
    from instrument.analyse.profile import Profile

log = logging.getLogger("instrument")

_STEP_REQUESTS = {
    ProfilerAction.NONE: Request.TO_NONE,
    ProfilerAction.WARMUP: Request.TO_WARMUP,
    ProfilerAction.RECORD: Request.TO_RECORD,
    ProfilerAction.RECORD_AND_SAVE: Request.TO_SAVE,
}
#: Whose steps the marks are.
_SOURCE = "step()"


class Profiler:
    """Record what the device does, in windows, each kept in one trace event file in `output_path`.

        profiler = Profiler(output_path="./run")      # before the dataset's iterator is built
        for batch in batches:
            train(batch)
            profiler.step()
        print(profiler.analyse())

    A window opens with `start` (or at once, with `start_profile=True`) and closes with `stop`, `analyse`, the end of a
    `with` block or of the program. With a `schedule`, `step` opens and closes windows, until the profiler is dropped.
    There may be many windows, one after the other. One profiler of a process has one open at a time. For `model.train`
    see `StopAtStep` and `StopAtEpoch`. Errors of the device or the disk are logged once and stop no training.

    Args:
        output_path: the directory for the trace event file. It is made where it is missing.
        start_profile: open a window (or begin the schedule) at once.
        activities: whose work is recorded. On the CPU, `ProfilerActivity.CPU` is that of the operators.
        profile_memory: record the memory of the device, on the CPU that of MindSpore's pool.
        data_process: record the data pipeline. None is True on the CPU, where it costs nothing, and False elsewhere.
        schedule: which steps to record, by the number of `step` calls. See `instrument.schedule`.
        on_trace_ready: called with this profiler whenever a window was closed.
        profiler_level, aic_metrics, with_stack, parallel_strategy, l2_cache, hbm_ddr, pcie, sys_io,
            sys_interconnection, host_sys, sync_enable, data_simplification, record_shapes, export_type, mstx,
            mstx_domain_include, mstx_domain_exclude: as MindSpore has them. An option without effect on the device at
            hand is logged once.
        keep_raw: keep the device's raw files, which are deleted otherwise once the event file holds them.
        max_steps: close a window after this many steps, and log it. A schedule ends with it. Without it a long window
            is only warned of: MindSpore keeps in memory what an open window records.

    Raises:
        TypeError, ValueError: an argument is unknown, with the nearest one that is not, or its value is wrong.
        OSError: `output_path` cannot be written, or could not be made.
        RuntimeError: it starts at once, and another profiler has a window open. In an interactive session, and where
            that profiler is gone, its window is closed and kept instead, and a warning is logged.
    """

    def __init__(
        self,
        output_path: str | os.PathLike[str] = "./data",
        *,
        start_profile: bool = True,
        activities: Iterable[Enum | str] | None = None,
        profile_memory: bool = False,
        data_process: bool | None = None,
        schedule: Callable[[int], object] | None = None,
        on_trace_ready: Callable[[Profiler], object] | None = None,
        profiler_level: Enum | str | None = ProfilerLevel.Level0,
        aic_metrics: Enum | str | int = AicoreMetrics.AiCoreNone,
        with_stack: bool = False,
        parallel_strategy: bool = False,
        l2_cache: bool = False,
        hbm_ddr: bool = False,
        pcie: bool = False,
        sys_io: bool = False,
        sys_interconnection: bool = False,
        host_sys: Sequence[Enum | str] = (),
        sync_enable: bool = True,
        data_simplification: bool = True,
        record_shapes: bool = False,
        export_type: Iterable[Enum | str] | None = (ExportType.Text,),
        mstx: bool = False,
        mstx_domain_include: Sequence[str] = (),
        mstx_domain_exclude: Sequence[str] = (),
        keep_raw: bool = False,
        max_steps: int | None = None,
        **outdated: object,
    ) -> None:
        given = {name: value for name, value in locals().items() if name in OPTIONS}
        directory = check_output_directory("output_path", output_path)
        options = from_arguments(given, outdated, Profiler)
        self._schedule = check_callable("schedule", schedule)
        self._on_trace_ready = check_callable("on_trace_ready", on_trace_ready)
        #: How many times `step` was called, since a schedule's begin where there is one.
        self.step_num = 0
        self._step_start_ns = 0
        self.recorder = Recorder(directory, options, self)
        if options.start_profile:
            self.start()

    def __getstate__(self) -> dict[str, object]:
        self.recorder.check_copied(self)
        return self.__dict__

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self.recorder.adopt(self)

    def deliver(self) -> None:
        """Call `on_trace_ready`: the recorder does so whenever a window was closed."""
        if self._on_trace_ready is not None:
            self._on_trace_ready(self)

    # ------------------------------------------------------------------ recording

    def start(self) -> None:
        """Open a window, or begin the schedule with step 0. While recording it changes nothing, and says so.

        Raises:
            RuntimeError: another profiler has a window open.
        """
        if self._schedule is None:
            self.recorder.request = WindowRange()
            self._ask(Request.START)
            return
        is_begun = self.recorder.is_scheduled and self.recorder.state not in (ProfilerState.IDLE, ProfilerState.DONE)
        self._ask(Request.BEGIN)
        if not is_begun:
            self.recorder.begin_schedule(getattr(self._schedule, "repeat", 0))
            self.step_num = 0
            self._to_step()

    def stop(self) -> None:
        """Close the window and bring it to the event file. A schedule ends. When nothing is open it does nothing.

        If the device failed at the start, a warning names the reason.

        Raises:
            RuntimeError: nothing was ever started.
        """
        cut = "stop() was called" if self.recorder.is_scheduled else ""
        self._ask(Request.STOP, cut)

    def step(self) -> None:
        """Mark the end of a step of a hand-written loop and the begin of the next."""
        opened = self.recorder.window
        if opened is not None:
            opened.marks.settle()
        now_ns = time.monotonic_ns()
        if opened is not None:
            opened.marks.add_step(_SOURCE, self.step_num, self._step_start_ns, now_ns)
        self._step_start_ns = now_ns
        self.step_num += 1
        if self._schedule is not None:
            self._to_step()

    def _to_step(self) -> None:
        assert self._schedule is not None
        action = action_of(self._schedule(self.step_num))
        if isinstance(self._schedule, Schedule):
            self.recorder.request = WindowRange(self._schedule.window(self.step_num) or self._schedule.first_window)
        self._ask(_STEP_REQUESTS[action])

    def _ask(self, request: Request, reason: str = "") -> None:
        before = self.recorder.window
        self.recorder.ask(request, reason)
        opened = self.recorder.window
        if opened is not None and opened is not before:
            self._step_start_ns = opened.start_monotonic_ns

    def __enter__(self) -> Profiler:
        if self.recorder.state in (ProfilerState.IDLE, ProfilerState.DONE):
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close what is open. What was raised inside of the block is what the caller sees."""
        if kind is None:
            self._ask(Request.EXIT, "the with block ended" if self.recorder.is_scheduled else "")
            return
        opened = self.recorder.window
        if opened is not None:
            opened.marks.add_open_step(_SOURCE, self.step_num, self._step_start_ns)
        self._ask(Request.EXIT, describe(kind, error))

    def add_metadata(self, key: str, value: str) -> None:
        """Add a fact of yours to the windows that are closed from now on."""
        self.recorder.metadata.add(key, value)

    def add_metadata_json(self, key: str, value: str) -> None:
        """Add a fact whose value is JSON. Raises `ValueError` if it is not."""
        self.recorder.metadata.add_json(key, value)

    # ------------------------------------------------------------------ results

    def analyse(
        self,
        offline_path: str | os.PathLike[str] | None = None,
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        mode: str = "sync",
    ) -> Profile:
        """Close the window if it is open, explain the latest window, and save the profile beside the trace.

        Where a window was asked for and not reached the profile is empty, says so, and is not saved. One that cannot be
        saved, as on a full disk, is logged.

        Args:
            offline_path: a trace event file, run or raw directory to explain instead.
            pretty: indent the JSON files.
            step_list: only these steps, consecutive numbers.
            mode: "sync" and "async" do the same: the analysis happens here and now.

        Raises:
            RuntimeError: nothing was recorded yet.
        """
        if mode not in ("sync", "async"):
            raise ValueError(f"mode is {mode!r}; expected 'sync' or 'async'.")
        if offline_path is not None:
            return self.offline_analyse(offline_path, pretty, step_list)
        profile = self._profile()
        if self._is_missed:
            return profile
        return _saved(_steps_of(profile, step_list), self.recorder.output_path, pretty)

    @classmethod
    def offline_analyse(
        cls,
        path: str | os.PathLike[str],
        pretty: bool = False,
        step_list: Sequence[int] | None = None,
        data_simplification: bool = True,
    ) -> Profile:
        """Explain the last window at `path`: a trace event file, a run, or a directory of raw files.

        `data_simplification` has no effect: nothing of the trace is deleted.
        """
        source = check_directory("path", path)
        directory = source if os.path.isdir(source) else os.path.dirname(source)
        return _saved(_steps_of(_explain(source, -1), step_list), directory, pretty)

    def op_analyse(self, op_name: str | Sequence[str], device_id: int | None = None) -> str:
        """Count, total and mean time of operators by type and input shapes, as MindSpore's JSON."""
        return self._profile().op_analyse(op_name, device_id)

    def key_averages(self) -> KeyAverages:
        """Return operators by name. Its `table(sort_by, row_limit)` is a text."""
        return self._profile().key_averages()

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline for Perfetto or chrome://tracing, compressed if `path` ends with `.gz`."""
        self._profile().export_chrome_trace(path)

    @property
    def _is_missed(self) -> bool:
        """True if nothing was recorded, for a reason that is known."""
        return self.recorder.state is ProfilerState.IDLE and bool(self.recorder.missed)

    def _profile(self) -> Profile:
        if self._is_missed:
            where = (self.recorder.output_path, framework.device_target().lower(), self.recorder.missed)
            from instrument.analyse.profile import nothing

            return nothing(*where)
        self._ask(Request.ANALYSE)
        if self.recorder.latest is None:
            raise RuntimeError(
                f"Profiler({self.recorder.output_path!r}): no window was recorded yet; the schedule is at step "
                f"{self.step_num}."
            )
        return _explain(*self.recorder.latest)


def describe(kind: type[BaseException], error: BaseException | None) -> str:
    """Return an exception as the reason why a window is cut short."""
    return f"{kind.__name__}: {error}"[:200] if error is not None and str(error) else kind.__name__


def _explain(path: str, number: int) -> Profile:
    """Open a profile. Of the writing half, only this module calls the reading half: late, and when a user asks."""
    from instrument.analyse.profile import profile

    return profile(path, window=number)


def _saved(profile: Profile, directory: str, pretty: bool) -> Profile:
    """Save a profile and return it. An error, such as that of a full disk, is logged."""
    try:
        profile.save(directory, pretty=pretty)
    except OSError as error:
        log.error("Profiler: the profile cannot be saved in %s: %s", directory, error.strerror or error)
    return profile


def _steps_of(profile: Profile, steps: Sequence[int] | None) -> Profile:
    if steps is None:
        return profile
    numbers = sorted(check_steps(steps))
    if not numbers or numbers != list(range(numbers[0], numbers[-1] + 1)):
        raise ValueError(f"step_list is {list(steps)}; expected consecutive numbers of steps, such as [3, 4, 5].")
    return profile.of_steps(numbers[0], numbers[-1])


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Profiler], None]:
    """Return an `on_trace_ready` that writes each window's timeline to `dir_name`, as TensorBoard's plugin names it.

    The files are called `<worker>.<nanoseconds>.pt.trace.json`, with `.gz` if asked. `worker_name` is by default the
    host's name and this process's number.
    """
    directory = check_directory("dir_name", dir_name)
    worker = worker_name or f"{platform.node()}_{os.getpid()}"
    end = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"

    def export(profiler: Profiler) -> None:
        os.makedirs(directory, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(directory, f"{worker}.{time.time_ns()}{end}"))

    return export
