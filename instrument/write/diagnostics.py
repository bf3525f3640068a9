"""Report what goes wrong on the writing side: to the log and, where events are missing, in the file too."""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from dataclasses import replace

from instrument.ringfile import commit
from instrument.ringfile.commit import Notice
from instrument.values import Event, Gap

log = logging.getLogger("instrument")

#: Why events are missing that found no room though the disk takes what it is given; logged once, not for each gap.
RING_FULL = "there was no room in memory"

_AT_LIMIT = commit.limit_reason(0)[:-1]
#: What is no error of recording.
_NO_ERRORS = ("limit", "large")
#: What a `Notice` is about -> how the log says it.
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


class Diagnostics:
    """Collects what the writing side has to report: logged once for each cause, counted, and kept for `take_error`.

    It is logged by `emit`, for which nobody should hold a lock: a logging handler may want to record something itself.
    """

    def __init__(self) -> None:
        self.errors = 0
        #: What `emit` has to log.
        self.waiting: deque[tuple[object, ...]] = deque()
        self._logged: set[tuple[str, str, str]] = set()
        self._first: Notice | None = None
        self._lock = threading.RLock()  # a signal handler may have something to say in the middle of this

    def add(self, notice: Notice) -> None:
        with self._lock:
            # Each exported tensor is a file of its own; what keeps one from being written will keep the others.
            path = os.path.dirname(notice.path) if notice.what == "export" else notice.path
            cause = (notice.what, path, notice.reason)
            if cause not in self._logged:
                self._logged.add(cause)
                self.note(*_WORDING[notice.what], notice._asdict())
            if notice.what not in _NO_ERRORS:
                self.errors += 1
                self._first = self._first or notice

    def note(self, level: int, text: str, *arguments: object) -> None:
        """Have a message logged that is no error of recording."""
        self.waiting.append((level, text, *arguments))

    def emit(self) -> None:
        """Log what waits for it."""
        while self.waiting:
            try:
                level, text, *arguments = self.waiting.popleft()
            except IndexError:  # another thread was faster
                return
            log.log(level, text, *arguments)  # type: ignore[arg-type]

    def take_first(self) -> Notice | None:
        with self._lock:
            first, self._first = self._first, None
            return first


class Missing:
    """Counts events that are missing, until one that is taken has the gap in the file."""

    def __init__(self, diagnostics: Diagnostics, path: str) -> None:
        self._diagnostics = diagnostics
        self._path = path
        self._gap: Gap | None = None
        self.is_any = False

    def add(self, step: int, reason: str) -> None:
        gap = self._gap
        self.is_any = True
        self._gap = Gap(1, step, step, reason) if gap is None else replace(gap, events=gap.events + 1, last_step=step)

    @property
    def event(self) -> Event:
        """An event that holds nothing but the gap."""
        assert self._gap is not None
        return commit.gap_event(self._gap)

    def before(self, event: Event) -> Event:
        """Return the event with the gap at its beginning."""
        if self._gap is None:
            return event
        return event._replace(items=[commit.gap_item(self._gap), *event.items])

    def reported(self, in_file: bool = True) -> None:
        """Take note that the gap is in the file, or on its way there; or that only the log can have it."""
        gap, self._gap, self.is_any = self._gap, None, False
        if gap is None or gap.reason.startswith(_AT_LIMIT):
            return  # a warning has said so when the first of them was refused
        if not (in_file and gap.reason == RING_FULL):
            text = "%d events are missing from %s, between steps %d and %d (%s); the file " + (
                "says so at its place." if in_file else "could not be made to say so."
            )
            arguments = (gap.events, self._path, gap.first_step, gap.last_step, gap.reason)
            self._diagnostics.note(logging.WARNING, text, *arguments)
