"""Carry out the actions of the transition table in `control`, for a `Profiler` and the callbacks.

The device's profiler exists once in a process, so of all recorders one has a window open at a time. Nothing that goes
wrong with the device, the disk or the user's `on_trace_ready` stops a training, whatever the exception: it is logged,
and the recorder can be used again. The one error that comes through is the user's: an operator that failed before a
window opened or closed is waited for there, and its error is raised when the window is safe.

A profiler that nobody can reach any more, as after an interrupted cell of a notebook, must not keep later ones from
recording. Its window is closed and kept when the next one opens. A script that opens two windows at once is refused
instead: there the first one is still wanted.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import logging
import os
import sys
import threading
import weakref
from typing import Any, Protocol

from instrument import framework
from instrument.errors import InstrumentError
from instrument.profiler import backends, control
from instrument.profiler.archive import archive_files
from instrument.profiler.backends.base import Backend
from instrument.profiler.control import Action, ProfilerState
from instrument.profiler.options import Metadata, Options
from instrument.profiler.signals import TerminationGuard
from instrument.profiler.window import ProfilerWindow, WindowRange
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target

log = logging.getLogger("instrument")


class Owner(Protocol):
    """The object that the user holds."""

    def deliver(self) -> None:
        """Hand the results to the user. Called whenever a window was closed."""


#: A window of more steps is warned of: what it records stays in memory until it is closed.
MANY_STEPS = 1000

_lock = threading.RLock()
#: The recorder that has a window open, and all that have something to do at the end of the interpreter.
_recording: Recorder | None = None
_begun: set[Recorder] = set()


class Recorder:
    """Windows of one output path: all go to one trace event file, which is created with the first."""

    def __init__(self, output_path: str, options: Options, owner: Owner | None = None) -> None:
        self.output_path = output_path
        self.metadata = Metadata()
        self.state = ProfilerState.IDLE
        #: How many windows were opened and closed; each has the number of those before it.
        self.windows = 0
        #: The latest window: the event file and its number there, or a raw directory and -1.
        self.latest: tuple[str, int] | None = None
        #: What the next window is for.
        self.request = WindowRange()
        self.is_scheduled = False
        #: Why there is no window where one was asked for.
        self.missed = ""
        #: How many windows the schedule has, 0 where it has no end, and how many there were before it.
        self._planned, self._windows_before = 0, 0
        self._options = options
        self._owner = weakref.ref(owner) if owner is not None else None
        self._backend: Backend | None = None
        self._window: ProfilerWindow | None = None
        self._sink: Sink | None = None
        self._said: set[str] = set()
        self._is_busy = False
        self._users_error: Exception | None = None
        self._pid = os.getpid()
        if framework.device_target() == "CPU":
            self._arm()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_owner": None}  # a copy belongs to another profiler

    def adopt(self, owner: Owner) -> None:
        """Set the owner, unless there is one already."""
        if self._owner is None:
            self._owner = weakref.ref(owner)

    def check_copied(self, owner: object) -> None:
        """Raise `TypeError` where the owner cannot be pickled or copied: this has files of a window open."""
        if self._window is not None or self._sink is not None:
            raise TypeError(
                f"A {type(owner).__name__} cannot be pickled or copied once it has recorded, as it holds open files. "
                "Do it before, or make another one."
            )

    def _arm(self) -> None:
        """Have data pipelines recorded that are built from now on, before the first window opens."""
        from instrument.profiler.backends import cpu

        try:
            cpu.arm(self._options)
        except Exception as error:  # noqa: BLE001  whatever another MindSpore raises
            self._say_error(f"the data pipeline is not recorded: {error}")

    @property
    def is_recording(self) -> bool:
        return self._window is not None

    @property
    def window(self) -> ProfilerWindow | None:
        return self._window

    def begin_schedule(self, planned: int) -> None:
        """Begin a schedule of `planned` windows, or 0 for as many as there are steps for."""
        self.is_scheduled = True
        self._planned, self._windows_before = planned, self.windows

    def _check_length(self) -> None:
        """Close a window that has as many steps as were allowed. Warn of a long one. Called at the end of a step."""
        if self._window is None:
            return
        steps, most = self._window.marks.steps, self._options.max_steps
        if most is not None and steps >= most:
            self.ask(control.Request.STOP, f"max_steps={most} was reached")
        elif steps == MANY_STEPS and most is None:
            log.warning(
                "Profiler: a window has been open for %d steps and grows on, in memory; stop() closes it, "
                "max_steps=N does so by itself.", steps,
            )  # fmt: skip

    # ------------------------------------------------------------------ the table

    def ask(self, request: control.Request, reason: str = "") -> None:
        """Carry out what the table says. `reason` is what cuts an open window short.

        Raises:
            RuntimeError: the request makes no sense now. The message says what to do.
            Exception: what an operator of the user's raised that was waited for.
        """
        if os.getpid() != self._pid:
            return  # a forked child has none of it
        with _lock:
            row = control.decide(self.state, request, "", self.missed)
            if control.Action.OPEN in row.actions and _recording not in (None, self):
                row = control.decide(self.state, request, _end_lost(), self.missed)
            if row.refusal:
                raise RuntimeError(f"Profiler({self.output_path!r}): {row.refusal}")
            if row.warning:
                self._say(logging.WARNING, row.warning)
            is_outermost, self._is_busy = not self._is_busy, True
            try:
                self._follow(row, reason)
            finally:
                self._is_busy = not is_outermost
                if is_outermost:
                    _guard.settle()
            error, self._users_error = self._users_error, None
        if error is not None:
            raise error

    def _follow(self, row: control.Row, reason: str) -> None:
        is_delivering = self.state is ProfilerState.DELIVERING
        state, window = row.state, self._window
        is_kept = True
        try:
            for action in row.actions:
                if action is Action.PREPARE:
                    self.prepare()
                elif action is Action.OPEN:
                    self._open()
                elif action is Action.CLOSE:
                    is_kept = self._close(reason)
                elif action is Action.DELIVER and is_kept:
                    self._deliver()
                elif action is Action.REPORT:
                    self._report()
        except Exception as error:  # noqa: BLE001  the profiler's edge to a training, which goes on
            log.error("Profiler: %s: %s. Training goes on; a window may be missing.", type(error).__name__, error)
        finally:
            if self._window is None and state in (
                ProfilerState.RECORDING,
                ProfilerState.SAVING,
            ):  # it could not be opened
                state = ProfilerState.WAITING if self.is_scheduled else ProfilerState.DONE
            self.state = state if is_delivering else control.settled(state, self.windows)
            self._register()
        if window is not None and window.error is not None and not reason:
            self._users_error = window.error

    def _register(self) -> None:
        """Register for the end of the interpreter as long as there is something to do then."""
        if self.state in (ProfilerState.IDLE, ProfilerState.DONE):
            _begun.discard(self)
        else:
            _begun.add(self)

    # ------------------------------------------------------------------ actions

    def prepare(self) -> Backend | None:
        """Make the backend ready and return it; None, logged once, if there is none for this device."""
        try:
            if self._backend is None:
                self._backend = backends.create(framework.device_target(), self._options)
                self._backend.prepare()
        except Exception as error:  # noqa: BLE001  the edge to another's code
            self._say_error(f"{type(error).__name__}: {error}")
        return self._backend

    def expect(self, is_next: bool) -> None:
        """Tell the backend whether the next step opens a window."""
        if self.is_recording or (_recording is not None and _recording is not self):
            return
        backend = self.prepare()
        if backend is not None:
            try:
                backend.expect(is_next)
            except Exception as error:  # noqa: BLE001  the edge to another's code
                self._say_error(f"{type(error).__name__}: {error}")

    def _open(self) -> None:
        global _recording
        backend = self.prepare()
        if backend is None:
            self.missed = f"there is no profiler for the device {framework.device_target()}."
            return
        try:
            framework.wait_for_operators()
        except Exception as error:  # noqa: BLE001  the user's; raised again at the end of the request
            self._users_error = error
            self.missed = f"an operator had failed before the window ({self.request}) could open."
            return
        try:
            self._window = ProfilerWindow(self.output_path, backend, framework.device_number(), self.request)
        except Exception as error:  # noqa: BLE001  the edge to another's code
            self.missed = f"the window ({self.request}) cannot be opened: {type(error).__name__}: {error}"
            self._say_error(self.missed)
            return
        self.missed = ""
        self._window.marks.on_step = self._check_length
        _recording = self
        _guard.install()

    def _close(self, reason: str) -> bool:
        """Close the window. Return True if there is something in it to look at."""
        global _recording
        window, self._window, latest = self._window, None, self.latest
        assert window is not None
        self.latest = (window.directory, -1)  # as long as nothing better is known
        try:
            incomplete = window.close(reason, self.metadata.values)
        except Exception as error:  # noqa: BLE001  the edge to another's code
            failure = f"the window ({window.request}) cannot be stopped: {type(error).__name__}: {error}"
            self._say_error(f"{failure}. What there is of it stays in {window.directory}.")
            self.windows += 1
            return False
        finally:
            _recording = None
            _guard.remove()
        if self.is_scheduled and not window.marks.has_steps:  # a loop ended with the last step of the one before
            window.remove()
            self.latest = latest
            self._report()
            return False
        self.windows += 1
        if incomplete:
            log.warning("Profiler: the window (%s) is not complete: %s.", window.request, incomplete)
        if dropped := window.dropped:
            log.warning("Profiler: %d marks were too many for one window and are missing in it.", dropped)
        self._archive(window)
        return True

    def _archive(self, window: ProfilerWindow) -> None:
        number, rank = self.windows - 1, framework.device_number()
        assert self._backend is not None
        try:
            if self._sink is None:
                self._sink = open_sink(Target(self.output_path, device=rank, kind="profile"), 0)
            archive_files(window.directory, number, rank, self._backend.kind, self._sink)
        except Exception as error:  # noqa: BLE001  the raw files are there still, and training goes on
            reason = str(error) if isinstance(error, (OSError, InstrumentError)) else f"{type(error).__name__}: {error}"
            self._say_error(f"a window is not in the event file: {reason}. Its raw files stay in {window.directory}.")
            return
        self.latest = (self._sink.path, number)
        if self._options.keep_raw:
            return
        try:
            window.remove()
        except OSError as error:
            self._say_error(f"raw files that are not needed any more cannot be deleted: {error}")

    def _deliver(self) -> None:
        owner = self._owner() if self._owner is not None else None
        if owner is None:
            return
        self.state = ProfilerState.DELIVERING
        try:
            owner.deliver()
        except Exception:
            log.exception("Profiler: on_trace_ready failed; the trace itself is safe in %s.", self.output_path)

    def _report(self) -> None:
        """Warn of windows of the schedule that were not reached."""
        there = self.windows - self._windows_before
        if not there:
            self.missed = f"the schedule's first window ({self.request}) was not reached; nothing was recorded."
            self._say(logging.WARNING, self.missed)
        elif there < self._planned:
            text = f"the schedule's window ({self.request}) was not reached; {there} of {self._planned} were recorded."
            self._say(logging.WARNING, text)

    # ------------------------------------------------------------------ words

    def _say_error(self, text: str) -> None:
        self._say(logging.ERROR, text)

    def _say(self, level: int, text: str) -> None:
        """Log a text once."""
        if text not in self._said:
            self._said.add(text)
            log.log(level, "Profiler: %s", text)

    @property
    def is_lost(self) -> bool:
        """True if nobody can reach the profiler of this recorder any more, or is expected to."""
        if self._owner is None or self._is_busy:
            return False
        return self._owner() is None or _is_interactive()

    def end_lost(self) -> None:
        """Close the open window of a profiler that is lost, and keep it."""
        self._say(logging.WARNING, f"the profiler that records into {self.output_path} was not stopped; its window is "
                  "closed and kept, since another profiler starts.")  # fmt: skip
        self.ask(control.Request.EXIT, "another profiler started")


def _is_interactive() -> bool:
    """Return True in a notebook or at a prompt, where the traceback of an interrupted cell keeps its objects alive."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


def _end_lost() -> str:
    """End the recorder that has a window open if it is lost. Return the directory of one that is not, else nothing."""
    if _recording is not None and not _recording.is_lost:
        gc.collect()  # it may be held by nothing but a cycle, as after an exception
    if _recording is not None and _recording.is_lost:
        _recording.end_lost()
    return _recording.output_path if _recording is not None else ""


@atexit.register
def _end_all(reason: str = "the interpreter ended") -> None:
    for recorder in list(_begun):
        try:
            recorder.ask(control.Request.EXIT, reason)
        except Exception:
            log.exception("Profiler: a window is lost: %s.", reason)


def _terminate() -> bool:
    """Close all windows at SIGTERM. Return False if a recorder is busy, which repeats the call when it is done."""
    if any(recorder._is_busy for recorder in _begun):
        return False
    _end_all("SIGTERM, perhaps for Ctrl+C")
    return True


_guard = TerminationGuard(_terminate)
