"""Carry out the actions of the transition table in `control`, for a `Profiler` and the callbacks.

Problem. A window lies between two calls of a training, which must not stop for it: the device may be gone, the disk
full, `on_trace_ready` wrong, MindSpore another version. The process may be terminated inside of the window, and in a
notebook an interrupted cell leaves a profiler that nobody can stop.

Strategy. Each action runs in one guard (`Recorder._guarded`): whatever is raised is logged once, with what it means for
the window, and the recorder can be used again. Only an error of the user's own
operators, which run asynchronously, is raised again, after the window has been saved. The end of the
interpreter and SIGTERM close what is open. A profiler that is dropped ends its schedule and closes its event file. A
window without a schedule stays open until the program ends, unless another profiler starts: its window is closed and
kept then. The device's profiler exists once in a process, so a script that holds two open windows is refused.

Rejected: a list of expected errors. Devices and versions of MindSpore raise unforeseen exceptions, and losing a
training is worse than a broad `except`.
"""

from __future__ import annotations

import atexit
import builtins
import gc
import logging
import os
import signal
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from instrument import framework
from instrument.errors import InstrumentError
from instrument.profiler import backends, control
from instrument.profiler.archive import archive_files
from instrument.profiler.backends import Backend
from instrument.profiler.control import Action, ProfilerState
from instrument.profiler.options import Metadata, Options
from instrument.profiler.window import ProfilerWindow, WindowRange
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target

log = logging.getLogger("instrument")


class Owner(Protocol):
    """The object that the user holds."""

    def deliver(self) -> None:
        """Hand the results to the user. Called whenever a window was closed."""


#: Stands in a message for what was raised.
REASON = "(reason)"
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
        #: The window that is open.
        self.window: ProfilerWindow | None = None
        #: How many windows the schedule has, 0 where it has no end, and how many there were before it.
        self._planned, self._windows_before = 0, 0
        self._options = options
        self._owner: weakref.ref[Owner] | None = None
        self._backend: Backend | None = None
        self._sink: Sink | None = None
        self._logged: set[str] = set()
        self._is_busy = False
        self._users_error: Exception | None = None
        self._pid = os.getpid()
        if owner is not None:
            self.adopt(owner)
        if framework.device_target() == "CPU":
            with self._guarded(f"the data pipeline is not recorded: {REASON}"):
                backends.record_pipelines(options)  # those that are built before the first window opens, too

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_owner": None}  # a copy belongs to another profiler

    def adopt(self, owner: Owner) -> None:
        """Set the owner, unless there is one already."""
        if self._owner is None:
            self._owner = weakref.ref(owner)
            weakref.finalize(owner, self._drop).atexit = False  # `_end_all` comes then

    def check_copied(self, owner: object) -> None:
        """Raise `TypeError` where the owner cannot be pickled or copied: this has files of a window open."""
        if self.window is not None or self._sink is not None:
            raise TypeError(
                f"A {type(owner).__name__} cannot be pickled or copied once it has recorded, as it holds open files. "
                "Do it before, or make another one."
            )

    @property
    def is_recording(self) -> bool:
        return self.window is not None

    def begin_schedule(self, planned: int) -> None:
        """Begin a schedule of `planned` windows, or 0 for as many as there are steps for."""
        self.is_scheduled = True
        self._planned, self._windows_before = planned, self.windows

    def _check_length(self) -> None:
        """Close a window that has as many steps as were allowed. Warn of a long one. Called at the end of a step."""
        if self.window is None:
            return
        steps, most = self.window.marks.steps, self._options.max_steps
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
            if Action.OPEN in row.actions and _recording not in (None, self):
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
                    _termination.settle()
            error, self._users_error = self._users_error, None
        if error is not None:
            raise error

    def _follow(self, row: control.Row, reason: str) -> None:
        is_delivering = self.state is ProfilerState.DELIVERING
        state, window = row.state, self.window
        is_kept = True
        try:
            with self._guarded(f"{REASON}. Training goes on; a window may be missing."):
                for action in row.actions:
                    if action is Action.PREPARE:
                        self._prepare()
                    elif action is Action.OPEN:
                        self._open()
                    elif action is Action.CLOSE:
                        is_kept = self._close(reason)
                    elif action is Action.DELIVER and is_kept:
                        self._deliver()
                    elif action is Action.REPORT:
                        self._report()
        finally:
            if self.window is None and state in (ProfilerState.RECORDING, ProfilerState.SAVING):  # it is not open
                state = ProfilerState.WAITING if self.is_scheduled else ProfilerState.DONE
            self.state = state if is_delivering else control.settled(state, self.windows)
            self._register()
        if window is not None and window.error is not None and not reason:
            self._users_error = window.error

    def _register(self) -> None:
        """Register for the end of the interpreter if there is something to do then; else close a dropped file."""
        if self.state not in (ProfilerState.IDLE, ProfilerState.DONE):
            _begun.add(self)
            return
        _begun.discard(self)
        if self._is_dropped and self._sink is not None:
            self._sink.close()
            self._sink = None

    @contextmanager
    def _guarded(self, message: str = REASON, has_traceback: bool = False) -> Iterator[list[str]]:
        """Log once what is raised inside of the block, as a message in which `REASON` stands for it.

        Yields:
            A list, in which the message is afterwards.
        """
        messages: list[str] = []
        try:
            yield messages
        except Exception as error:  # noqa: BLE001  the profiler's edge to a training, which goes on whatever is raised
            is_plain = isinstance(error, (OSError, InstrumentError))
            reason = str(error) if is_plain else f"{type(error).__name__}: {error}"
            messages.append(message.replace(REASON, reason, 1))
            self._say(logging.ERROR, messages[0], error if has_traceback else None)

    # ------------------------------------------------------------------ actions

    def _prepare(self) -> Backend | None:
        """Make the backend ready and return it; None, logged once, if there is none for this device."""
        with self._guarded():
            if self._backend is None:
                self._backend = backends.create(framework.device_target(), self._options)
                self._backend.prepare()
        return self._backend

    def expect(self, is_next: bool) -> None:
        """Tell the backend whether the next step opens a window."""
        if self.is_recording or (_recording is not None and _recording is not self):
            return
        backend = self._prepare()
        if backend is not None:
            with self._guarded():
                backend.expect(is_next)

    def _open(self) -> None:
        global _recording
        backend = self._prepare()
        if backend is None:
            self.missed = f"there is no profiler for the device {framework.device_target()}."
            return
        try:
            framework.wait_for_operators()
        except framework.OPERATOR_ERRORS as error:
            self._users_error = error
            self.missed = f"an operator had failed before the window ({self.request}) could open."
            return
        with self._guarded(f"the window ({self.request}) cannot be opened: {REASON}") as failures:
            self.window = ProfilerWindow(self.output_path, backend, framework.device_number(), self.request)
            self.window.marks.on_step = self._check_length
            _recording = self
            _termination.install()
        self.missed = "".join(failures)

    def _close(self, reason: str) -> bool:
        """Close the window. Return True if there is something in it to look at."""
        global _recording
        window, self.window, latest = self.window, None, self.latest
        assert window is not None
        self.latest = (window.directory, -1)  # as long as nothing better is known
        try:
            with self._guarded(
                f"the window ({window.request}) cannot be stopped: {REASON}. What there is of it stays in "
                f"{window.directory}."
            ) as failures:
                incomplete = window.close(reason, self.metadata.values)
        finally:
            _recording = None
            _termination.remove()
        if failures:
            self.windows += 1
            return False
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
        with self._guarded(f"a window is not in the event file: {REASON}. Its raw files stay in {window.directory}."):
            self._archive(window)
        return True

    def _archive(self, window: ProfilerWindow) -> None:
        number, rank = self.windows - 1, framework.device_number()
        assert self._backend is not None
        if self._sink is None:
            self._sink = open_sink(Target(self.output_path, device=rank, kind="profile"), 0)
        archive_files(window.directory, number, rank, self._backend.kind, self._sink)
        self.latest = (self._sink.path, number)
        if not self._options.keep_raw:
            try:
                window.remove()
            except OSError as error:
                self._say(logging.ERROR, f"raw files that are not needed any more cannot be deleted: {error}")

    def _deliver(self) -> None:
        owner = self._owner() if self._owner is not None else None
        if owner is None:
            return
        self.state = ProfilerState.DELIVERING
        with self._guarded(
            f"on_trace_ready failed: {REASON}; the trace itself is safe in {self.output_path}.", has_traceback=True
        ):
            owner.deliver()

    def _report(self) -> None:
        """Warn of windows of the schedule that were not reached."""
        there = self.windows - self._windows_before
        if not there:
            self.missed = f"the schedule's first window ({self.request}) was not reached; nothing was recorded."
            self._say(logging.WARNING, self.missed)
        elif there < self._planned:
            text = f"the schedule's window ({self.request}) was not reached; {there} of {self._planned} were recorded."
            self._say(logging.WARNING, text)

    def _say(self, level: int, text: str, error: Exception | None = None) -> None:
        """Log a text once; each time with the traceback of an error, which is of the user's code."""
        if error is not None or text not in self._logged:
            self._logged.add(text)
            log.log(level, "Profiler: %s", text, exc_info=error)

    # ------------------------------------------------------------------ the end

    @property
    def _is_dropped(self) -> bool:
        """True if nobody can reach the profiler of this recorder any more."""
        return self._owner is not None and self._owner() is None

    def _drop(self) -> None:
        """End what nobody can go on with: a schedule gets no more steps. A window without one may still be wanted."""
        if os.getpid() != self._pid:
            return
        if self not in _begun:
            self._register()
            return
        with _lock:
            is_wanted = self.is_recording and not self.is_scheduled
            outcome = (
                "its window stays open until the program ends or another profiler starts" if is_wanted
                else "its schedule ends, and its file is closed"
            )  # fmt: skip
            self._say(logging.WARNING, f"the profiler that records into {self.output_path} was dropped without stop(): "
                      f"{outcome}. Keep the Profiler and call stop(), or use `with Profiler(...)`.")  # fmt: skip
            if not is_wanted:
                self.ask(control.Request.EXIT, "the profiler was dropped")

    def give_way(self) -> bool:
        """Close the open window for another profiler, and keep it, if nobody reaches this one or is expected to."""
        if self._owner is None or self._is_busy or not (self._is_dropped or _is_interactive()):
            return False
        self._say(logging.WARNING, f"the profiler that records into {self.output_path} was not stopped; its window is "
                  "closed and kept, since another profiler starts.")  # fmt: skip
        self.ask(control.Request.EXIT, "another profiler started")
        return True


def _is_interactive() -> bool:
    """Return True in a notebook or at a prompt, where the traceback of an interrupted cell keeps its objects alive."""
    return hasattr(sys, "ps1") or hasattr(builtins, "__IPYTHON__")


def _end_lost() -> str:
    """End the recorder that has a window open if it is lost. Return the directory of one that is not, else nothing."""
    if _recording is not None and not _recording.give_way():
        gc.collect()  # it may be held by nothing but a cycle, as after an exception
        if _recording is not None:  # its end may have come with it
            _recording.give_way()
    return _recording.output_path if _recording is not None else ""


@atexit.register
def _end_all(reason: str = "the interpreter ended") -> None:
    for recorder in list(_begun):
        recorder.ask(control.Request.EXIT, reason)


class _Termination:
    """SIGTERM while a window is open: the windows are closed, then the process ends by the signal as it would have.

    MindSpore's own answer to Ctrl+C inside a graph is to send itself SIGTERM. Schedulers of clusters send it too. A
    handler of the user's own is left alone. A recorder that is busy when the signal comes calls `settle` when it is
    done.
    """

    def __init__(self) -> None:
        self._is_pending = False

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)

    def remove(self) -> None:
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def settle(self) -> None:
        """End the process if a signal came at a time at which nothing could be done about it."""
        if self._is_pending:
            self._handle(signal.SIGTERM, None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._is_pending = any(recorder._is_busy for recorder in _begun)
        if not self._is_pending:
            _end_all("SIGTERM, perhaps for Ctrl+C")
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


_termination = _Termination()
