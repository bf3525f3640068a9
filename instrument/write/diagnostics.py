"""Report what goes wrong on the writing side: to the log and, where events are missing, in the file too."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from dataclasses import replace

from instrument.ringfile import commit
from instrument.ringfile.commit import Diagnostic
from instrument.values import Event, Gap

log = logging.getLogger("instrument")

#: Why events are missing that found no room though the disk takes what it is given; logged once, not for each gap.
RING_FULL = "there was no room in memory"

_AT_LIMIT = commit.limit_reason(0)[:-1]
#: Kinds that are no errors of recording.
_NO_ERRORS = ("limit", "large")
#: Kind of a `Diagnostic` -> the beginning of a `RecordingError`.
_ERRORS = {
    "gone": "What was recorded before step {} is lost",
    "stalled": "Step {} and what follows cannot be written at the moment",
    "kept": "Step {} is not in its file yet",
    "export": "A tensor of step {} cannot be exported",
    "sync": "What was recorded may not survive a power failure",
}
#: Kind of a `Diagnostic` -> level and text of its log message.
_WORDING = {
    "lost": (
        logging.ERROR,
        "Events are missing from %(path)s, the first at step %(step)d: %(reason)s. Training goes on; "
        "recording is tried again each step.",
    ),
    "stalled": (
        logging.ERROR,
        "Nothing can be written to %(path)s at step %(step)d: %(reason)s. Training goes on; what fits into memory is "
        "kept until there is room, then events are dropped.",
    ),
    "kept": (
        logging.ERROR,
        "%(reason)s. They are kept in %(path)s: `instrument repair` on its directory appends them to the event files "
        "when there is room, and so does the next recorder there; readers show them already.",
    ),
    "gone": (
        logging.ERROR,
        "What %(path)s held before step %(step)d is lost: %(reason)s. Recording goes on there, in a new "
        "file where none is left.",
    ),
    "limit": (
        logging.WARNING,
        "%(path)s is full: step %(step)d and what follows is not recorded (%(reason)s). Training goes on.",
    ),
    "large": (
        logging.WARNING,
        "Step %(step)d is too large for what is left of %(path)s and is not recorded (%(reason)s). Training goes on; "
        "what fits is recorded, and the file says what is missing.",
    ),
    "sync": (
        logging.ERROR,
        "%(path)s may not survive a power failure: %(reason)s. It can be read all the same.",
    ),
    "export": (
        logging.ERROR,
        "%(path)s (step %(step)d) cannot be exported, nor may others: %(reason)s. The event file goes on "
        "without regard to it.",
    ),
}


def error_text(diagnostic: Diagnostic) -> str:
    """Return the text of the exception for a diagnostic."""
    problem = _ERRORS.get(diagnostic.kind, "Step {} is lost").format(diagnostic.step)
    return f"{problem}, in {diagnostic.path}: {diagnostic.reason}"


class Diagnostics:
    """Collects what the writing side has to report: logged once for each cause, counted, and kept for `take_error`.

    `emit` logs it, and must not be called under a lock: a logging handler may record something itself.
    """

    def __init__(self) -> None:
        self.errors = 0
        #: What `emit` has to log.
        self.waiting: deque[tuple[object, ...]] = deque()
        self._logged: set[tuple[str, ...]] = set()
        self._first: Diagnostic | None = None
        self._lock = threading.RLock()  # a signal handler may add something in the middle of `add`

    def add(self, diagnostic: Diagnostic) -> None:
        """Count an error, and have it logged unless its cause was logged before."""
        with self._lock:
            # Each exported tensor is a file of its own; what keeps one from being written will keep the others.
            path = os.path.dirname(diagnostic.path) if diagnostic.kind == "export" else diagnostic.path
            if self._is_new(diagnostic.kind, path, diagnostic.reason):
                self.note(*_WORDING[diagnostic.kind], diagnostic._asdict())
            if diagnostic.kind not in _NO_ERRORS:
                self.errors += 1
                self._first = self._first or diagnostic

    def _is_new(self, *cause: str) -> bool:
        """Return True the first time that a cause is given."""
        is_new = cause not in self._logged
        self._logged.add(cause)
        return is_new

    def note(self, level: int, text: str, *arguments: object) -> None:
        """Have a message logged that is no error of recording."""
        self.waiting.append((level, text, *arguments))

    def note_stall(self, path: str, step: int, drops_when_full: bool) -> None:
        """Have it logged, once, that events come faster than they are written."""
        if not self._is_new("stall"):
            return
        text = (
            '%s is written more slowly than it is recorded: at step %d record() waits for room (on_full="block"). '
            "Record less often, or give a larger queue_bytes."
        )
        if drops_when_full:
            text = (
                "%s is written more slowly than it is recorded: from step %d on, events for which there is no room "
                'are dropped (on_full="drop"); record.stats.dropped counts them, and the file says where they are '
                "missing. Record less often, or give a larger queue_bytes."
            )
        self.note(logging.WARNING, text, path, step)

    def note_takeover(self, path: str, reason: str) -> None:
        """Have it logged, once, that the training process does the work of the workers."""
        if self._is_new("takeover"):
            text = (
                "No worker process writes %s any more (%s): the training process has written what they left, and goes "
                "on writing it. Nothing is lost; recording costs the training thread more."
            )
            self.note(logging.WARNING, text, path, reason)

    def emit(self) -> None:
        """Log what waits for it."""
        while self.waiting:
            try:
                level, text, *arguments = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            log.log(level, text, *arguments)  # type: ignore[arg-type]

    def take_first(self) -> Diagnostic | None:
        """Return the first error since the last call."""
        with self._lock:
            first, self._first = self._first, None
            return first


class GapRecorder:
    """Counts the events that are missing from `path`, until the file itself records the gap."""

    def __init__(self, diagnostics: Diagnostics, path: str) -> None:
        self._diagnostics = diagnostics
        self._path = path
        self._gap: Gap | None = None
        #: True while there are missing events that the file does not mention.
        self.is_open = False

    def add(self, step: int, reason: str) -> None:
        """Count a missing event; the reason of the first one is that of the gap."""
        gap = self._gap
        self.is_open = True
        self._gap = Gap(1, step, step, reason) if gap is None else replace(gap, events=gap.events + 1, last_step=step)

    @property
    def event(self) -> Event:
        """Return an event that holds nothing but the gap."""
        assert self._gap is not None
        return commit.gap_event(self._gap)

    def prepend_to(self, event: Event) -> Event:
        """Return the event with the gap at its beginning."""
        if self._gap is None:
            return event
        return event._replace(items=[commit.gap_item(self._gap), *event.items])

    def close(self, in_file: bool = True) -> None:
        """Close the gap, which is in the file or on its way there; without `in_file`, only the log mentions it."""
        gap, self._gap, self.is_open = self._gap, None, False
        if gap is None or gap.reason.startswith(_AT_LIMIT):
            return  # a warning was logged when the first of them was refused
        if not (in_file and gap.reason == RING_FULL):
            text = "%d events are missing from %s, between steps %d and %d (%s); the file " + (
                "says so at its place." if in_file else "could not be made to say so."
            )
            arguments = (gap.events, self._path, gap.first_step, gap.last_step, gap.reason)
            self._diagnostics.note(logging.WARNING, text, *arguments)
