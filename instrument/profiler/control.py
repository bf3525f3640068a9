"""Transition table of the profiler: (state, request) -> next state, actions, message.

Problem. `start`, `stop`, `step`, `analyse`, the end of a `with` block, a schedule and the end of the interpreter come
in any order: twice, too early, inside of `on_trace_ready`, or while another profiler of the process has a window open.
A training must not stop for any of it, and no window may be lost.

Strategy. Each pair of a state and a request is a row of `TABLE`: it does what a user would expect, or refuses with a
message that says what to do instead. This module has no side effects. `recorder` carries out the actions. So a test
reads the whole table, and every pair has an answer.

Rejected: flags (is open, is scheduled, is saving, ...) that each method asks. Nine requests in seven states are 63
cases, of which such methods handle those that somebody thought of.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class ProfilerState(Enum):
    """State of a profiler. The last three have a schedule, `RECORDING` may have one."""

    IDLE = "nothing was recorded yet"
    DONE = "a window was recorded"
    RECORDING = "a window is open"
    #: `on_trace_ready` is running.
    DELIVERING = "on_trace_ready is running"
    #: Between the windows of a schedule.
    WAITING = "the schedule waits"
    WARMING = "the schedule warms up"
    #: The last step of a schedule's window is running.
    SAVING = "the window's last step is running"


class Request(Enum):
    START = "start()"
    #: `start()` of a profiler with a schedule.
    BEGIN = "start() with a schedule"
    STOP = "stop()"
    ANALYSE = "analyse()"
    #: The end of a `with` block or of the interpreter, or an exception: it comes when it comes.
    EXIT = "the end"
    #: `step()` with a schedule: what the next step is for.
    TO_NONE = "step() to a step that is not recorded"
    TO_WARMUP = "step() to a step of warm-up"
    TO_RECORD = "step() to a step that is recorded"
    TO_SAVE = "step() to the last step that is recorded"


class Action(Enum):
    #: Make ready what takes time.
    PREPARE = auto()
    #: Open a window; the one action that two profilers of a process cannot do at once.
    OPEN = auto()
    #: Close the window and bring its trace to the event file.
    CLOSE = auto()
    #: Call `on_trace_ready`.
    DELIVER = auto()
    #: Say so if no window was ever opened.
    REPORT = auto()
    EXPLAIN = auto()


class Row(NamedTuple):
    """`refusal` is raised, `warning` is logged. With a refusal nothing else happens."""

    state: ProfilerState
    actions: tuple[Action, ...] = ()
    refusal: str = ""
    warning: str = ""


_PREPARE, _OPEN, _CLOSE, _DELIVER, _REPORT, _EXPLAIN = Action
_END = (_CLOSE, _DELIVER)
#: In `DONE`: without any window it is `IDLE` again, see `settled`.
_IDLE, _DONE, _RECORDING, _DELIVERING, _WAITING, _WARMING, _SAVING = ProfilerState

_NO_STOP = "stop() was called, but nothing is being recorded; call start() first."
_NO_ANALYSE = "analyse() was called, but nothing was recorded yet; call start(), train some steps, then stop()."
_MISSED = "{request} was called, but nothing was recorded: {missed}"
_AGAIN = "start() was called while the profiler is recording already; it goes on recording the same window."
_WAITS = "start() was called again; the schedule goes on as it is."
_EARLY_STEP = "step() was called before start(); the schedule begins with start()."
_INSIDE = "{request} was called inside of on_trace_ready, where only results can be asked for; it does nothing."
_CUT = "The schedule leaves RECORD without RECORD_AND_SAVE; the window ends here and is kept."


def _resting(state: ProfilerState, stop: Row, analyse: Row, step_warning: str) -> dict[Request, Row]:
    steps = (Request.TO_NONE, Request.TO_WARMUP, Request.TO_RECORD, Request.TO_SAVE)
    return {
        Request.START: Row(_RECORDING, (_OPEN,)),
        Request.BEGIN: Row(_WAITING),
        Request.STOP: stop,
        Request.ANALYSE: analyse,
        Request.EXIT: Row(state),
        **{step: Row(state, warning=step_warning) for step in steps},
    }


def _scheduled(state: ProfilerState, is_saving: bool = False) -> dict[Request, Row]:
    """Return the rows of a state of a schedule in which no window is open, or in which a window is at its end."""
    end = _END if is_saving else ()
    return {
        Request.START: Row(state, warning=_WAITS),
        Request.BEGIN: Row(state, warning=_WAITS),
        Request.STOP: Row(_DONE, (*end, _REPORT)),
        Request.ANALYSE: Row(_DONE, (*end, _EXPLAIN)) if is_saving else Row(state, (_EXPLAIN,)),
        Request.EXIT: Row(_DONE, (*end, _REPORT)),
        Request.TO_NONE: Row(_WAITING, end),
        Request.TO_WARMUP: Row(_WARMING, end if state is _WARMING else (*end, _PREPARE)),
        Request.TO_RECORD: Row(_RECORDING, (*end, _OPEN)),
        Request.TO_SAVE: Row(_SAVING, (*end, _OPEN)),
    }


TABLE: dict[ProfilerState, dict[Request, Row]] = {
    _IDLE: _resting(_IDLE, Row(_IDLE, refusal=_NO_STOP), Row(_IDLE, refusal=_NO_ANALYSE), _EARLY_STEP),
    _DONE: _resting(_DONE, Row(_DONE), Row(_DONE, (_EXPLAIN,)), ""),
    _RECORDING: {
        Request.START: Row(_RECORDING, warning=_AGAIN),
        Request.BEGIN: Row(_RECORDING, warning=_WAITS),
        Request.STOP: Row(_DONE, _END),
        Request.ANALYSE: Row(_DONE, (*_END, _EXPLAIN)),
        Request.EXIT: Row(_DONE, _END),
        Request.TO_NONE: Row(_WAITING, _END, warning=_CUT),
        Request.TO_WARMUP: Row(_WARMING, (*_END, _PREPARE), warning=_CUT),
        Request.TO_RECORD: Row(_RECORDING),
        Request.TO_SAVE: Row(_SAVING),
    },
    _DELIVERING: {
        request: Row(_DELIVERING, (_EXPLAIN,))
        if request is Request.ANALYSE
        else Row(_DELIVERING, warning=_INSIDE.format(request=request.value))
        for request in Request
    },
    _WAITING: _scheduled(_WAITING),
    _WARMING: _scheduled(_WARMING),
    _SAVING: _scheduled(_SAVING, is_saving=True),
}

#: What replaces a row that would open a window while another profiler of the process has one open.
_OCCUPIED = (
    "Another profiler records into {other}; a process has one profiler of the device. Stop that one first, or record "
    "both windows with one Profiler."
)
OCCUPIED: dict[Request, Row] = {
    Request.START: Row(_IDLE, refusal=_OCCUPIED),
    Request.TO_RECORD: Row(_WAITING, warning=_OCCUPIED),
    Request.TO_SAVE: Row(_WAITING, warning=_OCCUPIED),
}


def decide(state: ProfilerState, request: Request, other: str = "", missed: str = "") -> Row:
    """Return the row for a request.

    `other` is the directory into which another profiler of this process has a window open, empty if none has. `missed`
    is the reason why a window that was asked for is not there: results are refused only if nothing was asked for.
    """
    row = TABLE[state][request]
    if row.refusal and missed and request in (Request.STOP, Request.ANALYSE):
        return Row(state, warning=_MISSED.format(request=request.value, missed=missed))
    if not other or Action.OPEN not in row.actions or Action.CLOSE in row.actions:
        return row
    instead = OCCUPIED[request]
    next_state = state if instead.refusal else instead.state
    return Row(next_state, (), instead.refusal.format(other=other), instead.warning.format(other=other))


def settled(state: ProfilerState, windows: int) -> ProfilerState:
    """Choose between `DONE` and `IDLE`: `DONE` if there is a window to look at."""
    if state in (ProfilerState.IDLE, ProfilerState.DONE):
        return ProfilerState.DONE if windows else ProfilerState.IDLE
    return state
