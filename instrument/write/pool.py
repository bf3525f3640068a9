"""The pool: events go into shared-memory rings, worker processes encode them and write in order.

- `write` puts an event into the ring of one worker and rings its bell: no waiting, no encoding, no file (`feed.py`).
- Workers outlive this process until they have written what it published, and are replaced when they die (`crew.py`).
  A thread that sleeps on their sockets notices it, and so does whoever waits for them.
- While the disk takes nothing, events stay in the rings; when these are full, `write` answers False at once, and the
  first event that finds room again says in the file how many are missing.
- A signal handler may call anything here, also in the middle of a `write`: what it records then is refused. What the
  outer call still needs is given back when that ends.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from instrument import forks
from instrument.events import Event, Item
from instrument.write import watch
from instrument.write.ahead import Ticket
from instrument.write.commit import Notice
from instrument.write.crew import Crew
from instrument.write.feed import Feed, GaveUp
from instrument.write.file_sink import FileSink
from instrument.write.limits import full_files, is_summary_full, upper_bound_bytes
from instrument.write.memory import round_up
from instrument.write.message import Staged
from instrument.write.notices import Missing, Notices, log
from instrument.write.shared import MAX_WORKERS
from instrument.write.sink import Files, Sink, Stats, Target
from instrument.write.spawn import check_system
from instrument.write.tag_names import TagNames

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Part = TypeVar("_Part")

DEFAULT_RING_BYTES = 24 << 20

_LEAST_RING_BYTES = 64 << 10
#: So long does `flush` or `close` wait for a disk that takes nothing.
_FULL_DISK_PATIENCE_SECONDS = 3.0
_EXIT_SECONDS = 10.0


def open_sink(target: Target, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False) -> Sink:
    """The sink for a target: a pool of `workers`, or one in this process for 0 and where no worker can be started.

    Raises:
        OSError: the target's directory cannot be made or written.
    """
    files = Files(target)
    if workers == 0:
        return FileSink(files)
    try:
        check_system()
        return PoolSink(files, workers, ring_bytes, drop_when_full)
    except (OSError, RuntimeError) as error:  # RuntimeError: no thread can be started
        reason = str(error)  # a log that keeps the error itself would keep what is open open
        log.warning("No worker can be started (%s): %s is written by the training process.", reason, files.summary_path)
        return FileSink(files)


class PoolSink:
    """Write through `workers` processes with `ring_bytes` of shared memory between them.

    Raises:
        OSError, RuntimeError: shared memory, descriptors, a process or a thread are not to be had.
    """

    def __init__(
        self, files: Files, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False
    ) -> None:
        count = min(workers, MAX_WORKERS)
        self._files = files
        self._notices = Notices()
        self._missing = Missing(self._notices, files.summary_path)
        self._tags = TagNames(self._notices) if files.layout.has_tensorboard else None
        self._max_file_bytes = files.target.max_file_bytes
        self._bound_bytes = files.summary_bytes
        self._lock = threading.RLock()
        self._is_writing = False
        self._depth = 0
        self._step = 0
        self._dropped = 0
        self._lost = 0
        self._why_left = ""
        ring_bytes = round_up(max(ring_bytes // count, _LEAST_RING_BYTES))
        crew = Crew(files, self._notices, count, ring_bytes)
        self._feed = Feed(crew, ring_bytes, drop_when_full)
        try:
            self._watcher = watch.start(self, crew.watched, crew.watched_end)
        except BaseException:
            crew.disband()
            raise
        forks.tell(self)

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        with self._lock:
            feed, state = self._feed, self._feed.state
            return Stats(
                state.events, sum(state.lengths), feed.last_sequence - state.sequence,
                feed.stalled_seconds, self._dropped + state.refused, self._lost + state.lost, self._notices.errors,
            )  # fmt: skip

    def take_error(self) -> Notice | None:
        return self._notices.take_first()

    # ------------------------------------------------------------------ one event

    def write(self, event: Event, says: bool = True) -> bool:
        feed = self._feed
        with self._lock:
            if feed.is_over:
                return False
            if self._is_writing:
                self._lost += 1  # the outer write is in the middle of saying what is missing
                return self._refuse(event, "it was recorded by a signal handler inside another record()")
            self._is_writing = True
            try:
                taken = self._write(event)
            except GaveUp:
                taken = not feed.is_over and self._lose(event, "no worker can be started")
            finally:
                try:
                    if feed.staged:
                        feed.forget_staged()
                finally:
                    self._is_writing = False
                    if self._feed.is_over:
                        self._release()
        if says and self._notices.unsaid:
            self._notices.say()
        return taken

    def say(self) -> None:
        self._notices.say()

    def stage(self, array: NDArray[np.generic]) -> Staged | None:
        return self._prepare(self._feed.stage, array) if array.size else None

    def ahead(self, item: Item, make_way: Callable[[], None]) -> Ticket | None:
        target = self._files.target
        has_rules = target.max_file_bytes is not None or target.export_tensors or self._tags is not None
        return None if has_rules else self._prepare(self._send_ahead, item, make_way)

    def _prepare(self, get: Callable[..., _Part | None], *arguments: Any) -> _Part | None:
        """What a function makes of a part of the next event; None where it cannot, which the write will say."""
        feed = self._feed
        with self._lock:
            if feed.is_over or self._is_writing:
                return None
            self._is_writing = True
            try:
                return get(*arguments)
            except GaveUp:
                return None
            finally:
                self._is_writing = False
                if self._feed.is_over:
                    self._release()

    def _send_ahead(self, item: Item, make_way: Callable[[], None]) -> Ticket | None:
        feed = self._feed
        array: Any = item.payload
        if self._missing.is_any or array.nbytes <= feed.largest_record_bytes:
            return None
        make_way()
        feed.forget_staged()
        written = feed.send_ahead(Event(0, 0.0, [item]))
        return Ticket(written.ticket, array.dtype, array.shape) if written is not None else None

    def fetch(self, ticket: Ticket) -> NDArray[np.generic] | None:
        with self._lock:
            if self._feed.is_over or (written := self._feed.pool.ahead).ticket != ticket.number:
                return None
            return ticket.read(self.path, written.values_at, bool(written.has_singles))

    def _write(self, event: Event) -> bool:
        feed, limit = self._feed, self._max_file_bytes
        self._step = event.step
        if limit is not None and not self._may_fit(event):
            return False
        if not self._missing.is_any or is_summary_full(feed.state):
            return self._send(event) and (limit is None or self._fits(event)) and not feed.is_over
        whole = self._missing.before(event)
        if not self._send(whole):
            return False
        fits = limit is None or self._fits(event, whole)
        self._missing.said(in_file=not is_summary_full(feed.state))
        return fits and not feed.is_over

    def _send(self, event: Event) -> bool:
        """Give an event to a worker; False where it was not taken, which has been counted and said."""
        feed = self._feed
        try:
            paths = self._files.further(event) if event.items or self._tags else ()
            if self._tags is not None:
                event = self._tags.named(event)
            if feed.last_ticket:
                event = _told_apart(event)
            packed = feed.pack(event, paths)
        except OSError as error:
            return self._lose(event, os.strerror(error.errno or 0))
        except Exception as error:  # noqa: BLE001  one event's fault must not stop training, here as in a worker
            return self._lose(event, f"it cannot be encoded: {error!r:.500}")
        if packed[1] > feed.largest_record_bytes:
            return self._stream(event, paths)
        return feed.publish(packed) or self._drop(feed.met_full_disk)

    def _stream(self, event: Event, paths: tuple[str, ...]) -> bool:
        states = self._feed.stream(event, paths)
        if states is None:
            return self._drop(self._feed.met_full_disk)
        before, after = states
        if after.lost == before.lost:
            return True
        if after.summary_bytes == before.summary_bytes:  # where it could not be encoded the file says so already
            self._missing.add(event.step, "it could not be written")
        return False

    def _lose(self, event: Event, reason: str) -> bool:
        self._lost += 1
        self._missing.add(event.step, reason)
        return self._refuse(event, reason)

    def _refuse(self, event: Event, reason: str) -> bool:
        self._notices.add(Notice("lost", event.step, self.path, reason))
        return False

    def _drop(self, is_disk_full: bool) -> bool:
        """There is no room: False."""
        self._dropped += 1
        if is_disk_full:
            self._missing.add(self._step, "the disk took nothing")
        return False

    # ------------------------------------------------------------------ the size limit

    def _may_fit(self, event: Event) -> bool:
        """Whether an event is worth sending: not all of its files are full, nor is it unknown how full they are."""
        assert self._max_file_bytes is not None
        if full_files(self._feed.state, event, self._files.layout)[1]:
            self._dropped += 1
            return False
        return self._bound_bytes <= self._max_file_bytes or self._measure() or self._drop(is_disk_full=True)

    def _fits(self, event: Event, whole: Event | None = None) -> bool:
        """Whether an event that was sent is in the file. Near the limit only the encoded size tells, so it is waited
        for; where the disk takes nothing meanwhile, or no worker can be started, it may still be refused.

        `whole` is the event with what it says is missing.
        """
        assert self._max_file_bytes is not None
        self._bound_bytes += upper_bound_bytes(whole or event, self._files.layout)
        if self._bound_bytes <= self._max_file_bytes:
            return True
        with suppress(GaveUp):
            self._measure()
        return not full_files(self._feed.state, event, self._files.layout)[0]

    def _measure(self) -> bool:
        """Wait for what was sent, and learn how large the files are; False where the disk takes nothing."""
        if not self._feed.wait_until_settled():
            return False
        state = self._feed.state
        self._bound_bytes = max(state.lengths)
        return True

    # ------------------------------------------------------------------ the end

    @contextmanager
    def _inside(self) -> Iterator[bool]:
        """Hold the lock; whether this is the outermost call, and none of a signal handler in the middle of another."""
        with self._lock:
            self._depth += 1
            try:
                yield self._depth == 1 and not self._is_writing
            finally:
                self._depth -= 1
                if self._feed.is_over:
                    self._release()

    def _release(self) -> None:
        """Give everything back and say what was left, unless an outer call is still in the middle of something."""
        if self._depth or self._is_writing:
            return
        left = self._feed.release()
        if left:
            self._lost += left
            reason = f"{left} events could not be written until the end: {self._why_left}"
            self._notices.add(Notice("lost", self._step, self.path, reason))
        self._missing.said(in_file=False)

    def flush(self, sync: bool = False) -> None:
        with self._inside():
            if self._feed.is_over:
                return
            self._settle()
            if sync:
                self._files.sync(self._notices.add)
        self._notices.say()

    def _settle(self, is_end: bool = False) -> None:
        feed = self._feed
        try:
            if not feed.wait_until_settled(_FULL_DISK_PATIENCE_SECONDS):
                if is_end:
                    feed.give_up(_EXIT_SECONDS)
                else:
                    feed.service()  # the reason is said before what follows from it
                    text = "%d events wait in memory until %s can be written again."
                    self._notices.note(logging.ERROR, text, self.stats.pending, self.path)
            feed.service()
        except GaveUp:
            if not (feed.is_over or is_end):
                reason = f"no worker can be started, and {self.stats.pending} events wait for one"
                self._notices.add(Notice("lost", self._step, self.path, reason))

    def close(self) -> None:
        feed = self._feed
        with self._inside() as is_outermost:
            if feed.is_over:
                return
            try:
                self._settle(is_end=True)
                if is_outermost and self._missing.is_any and feed.is_settled:
                    self._say_what_is_missing()
            finally:
                if not feed.is_over:  # a signal handler may have done it meanwhile
                    self._end()
        self._notices.say()
        # The outer call holds the lock that the watching thread may want.
        if is_outermost and threading.current_thread() is not self._watcher:
            self._watcher.join(_EXIT_SECONDS)

    def _say_what_is_missing(self) -> None:
        """The last chance for it: no event comes that could. Nobody waits for the disk any more."""
        feed = self._feed
        feed.forget_staged()
        size_bytes = feed.state.summary_bytes
        with suppress(GaveUp):
            if feed.publish(feed.pack(self._missing.event, ())):
                feed.give_up(_EXIT_SECONDS)
        feed.take_back()
        self._missing.said(in_file=feed.state.summary_bytes != size_bytes)

    def _end(self) -> None:
        feed = self._feed
        self._why_left = "no worker can be started" if feed.crew.is_hopeless else "there was no time"
        if feed.end():  # a worker may have died in a large event that was given up
            self._files.trim(feed.state)
        # Not before: a child that is forked meanwhile must be told, or it would wait for a lock that nobody gives back.
        forks.forget(self)

    def watch_once(self) -> float | None:
        with self._lock:
            if self._feed.is_over:
                return None
            self._feed.crew.service()
            seconds = self._feed.crew.next_look_seconds
        self._notices.say()
        return -1 if seconds is None else seconds

    def abandon(self) -> None:
        self._feed.abandon()
        self._notices = Notices()
        self._missing = Missing(self._notices, self.path)
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here


def _told_apart(event: Event) -> Event:
    """The event without the tensor that was sent ahead of it, which its ticket stands for."""
    for item in event.items:
        payload: Any = item.payload
        if isinstance(payload, Ticket):
            return event._replace(items=[one for one in event.items if one is not item], ahead=payload.number)
    return event
