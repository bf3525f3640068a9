"""The sink with workers: events go into shared-memory rings, worker processes encode them and write in order.

- `write` puts an event into the ring of one worker and rings its bell: no waiting, no encoding, no file
  (`producer.py`). What is larger than a ring is written by this process.
- Workers outlive this process until they have written what it published, and are replaced when they die
  (`supervisor.py`). A thread that sleeps on their sockets notices it, and so does whoever waits for them. Where no
  worker can be had any more, this process reads the rings and writes the files itself.
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
from instrument.events import Event
from instrument.ringfile import commit
from instrument.ringfile.commit import Job, Notice
from instrument.ringfile.control import MAX_WORKERS
from instrument.ringfile.record import Staged
from instrument.write import monitor
from instrument.write.consumer import Consumer
from instrument.write.diagnostics import RING_FULL, Diagnostics, Missing
from instrument.write.limits import full_files, may_have_gap, upper_bound_bytes
from instrument.write.npy_export import export_tensors
from instrument.write.pool_memory import round_up
from instrument.write.producer import Producer, WorkerUnavailable
from instrument.write.sink import Files, Stats, TagNames
from instrument.write.supervisor import Supervisor

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_Part = TypeVar("_Part")

DEFAULT_RING_BYTES = 24 << 20
_LEAST_RING_BYTES = 64 << 10
#: How long `flush` or `close` waits for a disk that takes nothing.
_FULL_DISK_PATIENCE_SECONDS = 3.0
_EXIT_SECONDS = 10.0
#: Training that was held up for so long in all is told so.
_REPORTED_STALL_SECONDS = 1.0
#: Between two attempts of this process to write what a disk did not take.
_RETRY_SECONDS = 0.2


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
        self._diagnostics = Diagnostics()
        self._missing = Missing(self._diagnostics, files.summary_path)
        self._tags = TagNames(self._diagnostics) if files.layout.has_tensorboard else None
        self._max_file_bytes = files.target.max_file_bytes
        self._bound_bytes = files.summary_bytes
        limit = self._max_file_bytes
        self._reserve_bytes = 0 if limit is None else commit.gap_bytes(limit, files.layout)
        self._lock = threading.RLock()
        self._is_writing = False
        self._depth = 0
        self._step = 0
        self._dropped = 0
        self._lost = 0
        self._reason_left = self._ring_path = ""
        self._has_reported_stall = self._has_reported_takeover = False
        ring_bytes = round_up(max(ring_bytes // count, _LEAST_RING_BYTES))
        supervisor = Supervisor(files, self._diagnostics, count, ring_bytes)
        self._producer = Producer(supervisor, ring_bytes, drop_when_full, self._make_consumer, self._diagnostics.add)
        try:
            self._monitor = monitor.start(self, supervisor.readable, supervisor.monitor_end)
        except BaseException:
            supervisor.disband()
            raise
        files.on_made = self._producer.pool.set_name
        forks.tell(self)

    def _make_consumer(self) -> Consumer:
        """Return what this process writes with where a worker does not."""
        files = self._files
        left_out = self._producer.supervisor.poison.left_out(1)  # what has ended a worker could end the training
        return Consumer(self._producer.pool, files.target.directory, left_out, self._diagnostics.add)

    @property
    def path(self) -> str:
        return self._files.summary_path

    @property
    def stats(self) -> Stats:
        with self._lock:
            producer, state = self._producer, self._producer.state
            return Stats(
                state.events, sum(state.lengths), max(producer.last_sequence - state.sequence, 0),
                producer.stalled_seconds, self._dropped + state.refused, self._lost + state.lost,
                self._diagnostics.errors,
            )  # fmt: skip

    def take_error(self) -> Notice | None:
        return self._diagnostics.take_first()

    # ------------------------------------------------------------------ one event

    def write(self, event: Event, says: bool = True) -> bool:
        producer = self._producer
        with self._lock:
            if producer.is_over:
                return False
            if self._is_writing:
                self._lost += 1  # the outer write is in the middle of saying what is missing
                return self._refuse(event, "it was recorded by a signal handler inside another record()")
            self._is_writing = True
            try:
                taken = self._write(event)
            except WorkerUnavailable:
                taken = not producer.is_over and self._lose(event, "no worker takes it")
            finally:
                try:
                    if producer.staged:
                        producer.forget_staged()
                finally:
                    self._is_writing = False
                    if self._producer.is_over:
                        self._release()
        if says and self._diagnostics.waiting:
            self._diagnostics.emit()
        return taken

    def say(self) -> None:
        self._diagnostics.emit()

    def stage(self, array: NDArray[np.generic]) -> Staged | None:
        return self._prepare(self._producer.stage, array) if array.size else None

    def _prepare(self, get: Callable[..., _Part | None], *arguments: Any) -> _Part | None:
        """Return what a function makes of a part of the next event; None where it cannot, which the write will say."""
        producer = self._producer
        with self._lock:
            if producer.is_over or self._is_writing:
                return None
            self._is_writing = True
            try:
                return get(*arguments)
            except WorkerUnavailable:
                return None
            finally:
                self._is_writing = False
                if self._producer.is_over:
                    self._release()

    def _write(self, event: Event) -> bool:
        limit, self._step = self._max_file_bytes, event.step
        if limit is not None:
            return self._write_within(limit, event)
        if not self._missing.is_any:
            return self._send(event)
        if not self._send(self._missing.before(event)):
            return False
        self._missing.reported()
        return True

    def _send(self, event: Event) -> bool:
        """Give an event to a worker; False where it was not taken, which has been counted and said."""
        producer = self._producer
        try:
            paths = self._files.further(event) if event.items or self._tags else ()
            if self._tags is not None:
                event = self._tags.named(event)
            packed = producer.pack(event)
        except OSError as error:
            return self._lose(event, os.strerror(error.errno or 0))
        except Exception as error:  # noqa: BLE001  one event's fault must not stop training, here as in a worker
            return self._lose(event, f"it cannot be encoded: {error!r:.500}")
        if packed[1] > producer.largest_record_bytes:
            return self._write_directly(event, paths)
        if not producer.publish(packed):
            return not producer.is_over and self._drop()
        if producer.stalled_seconds > _REPORTED_STALL_SECONDS and producer.drain is None:
            self._report_stall()
        return not producer.is_over

    def _write_directly(self, event: Event, paths: tuple[str, ...]) -> bool:
        """Write an event that is larger than the ring."""
        layout, report = self._files.layout, self._diagnostics.add

        def encode(sequence: int, event: Event) -> Job:
            if self._files.export_directory:
                export_tensors(event, self._files.export_directory, report)
            return commit.encode(sequence, event, (self.path, *paths), report, layout)

        try:
            states = self._producer.write_directly(event, encode)
        except OSError as error:
            return self._lose(event, os.strerror(error.errno or 0))
        if states is None:
            return self._drop()
        before, after = states
        return after.lost == before.lost

    def _lose(self, event: Event, reason: str) -> bool:
        self._lost += 1
        self._missing.add(event.step, reason)
        return self._refuse(event, reason)

    def _refuse(self, event: Event, reason: str) -> bool:
        self._diagnostics.add(Notice("lost", event.step, self.path, reason))
        return False

    def _drop(self) -> bool:
        """There is no room: False."""
        self._dropped += 1
        if self._producer.met_full_disk:
            self._missing.add(self._step, "the disk took nothing")
        else:
            self._missing.add(self._step, RING_FULL)
            self._report_stall()
        return False

    def _report_stall(self) -> None:
        """Log once that events come faster than they are written."""
        if not self._has_reported_stall:
            self._has_reported_stall = True
            text = (
                '%s is written more slowly than it is recorded: at step %d record() waits for room (on_full="block"). '
                "Record less often, or give a larger queue_bytes."
            )
            if self._producer.drops_when_full:
                text = (
                    "%s is written more slowly than it is recorded: from step %d on, events for which there is no room "
                    'are dropped (on_full="drop"); record.stats.dropped counts them, and the file says where they are '
                    "missing. Record less often, or give a larger queue_bytes."
                )
            self._diagnostics.note(logging.WARNING, text, self.path, self._step)

    # ------------------------------------------------------------------ the size limit

    def _may_have_gap(self, event: Event) -> bool:
        return self._missing.is_any and may_have_gap(self._producer.state, event, self._files.layout)

    def _write_within(self, limit: int, event: Event) -> bool:
        """Write an event to files with a size limit. Near it only the encoded size tells whether the event is in the
        file, so it is waited for; where the disk takes nothing meanwhile, or no worker writes, it may still be refused.
        """
        producer, reason = self._producer, commit.limit_reason(limit)
        if full_files(producer.state, event, self._files.layout)[1]:
            self._dropped += 1
            self._missing.add(event.step, reason)
            return False
        whole = self._missing.before(event) if self._may_have_gap(event) else event
        bound_bytes = upper_bound_bytes(whole, self._files.layout) + self._reserve_bytes
        is_near = self._bound_bytes + bound_bytes > limit
        if is_near and not self._measure():
            return self._drop()
        is_near = self._bound_bytes + bound_bytes > limit
        before = producer.state
        if not self._send(whole):
            return False
        self._bound_bytes += bound_bytes - self._reserve_bytes
        if is_near:
            with suppress(WorkerUnavailable):
                self._measure()
        after = producer.state
        is_in_first = not is_near or after.summary_bytes != before.summary_bytes
        if whole is not event and is_in_first:
            self._missing.reported()
        if not is_near or after.refused == before.refused:
            return True
        if not is_in_first:
            self._missing.add(event.step, reason)
        return False

    def _measure(self) -> bool:
        """Wait for what was sent, and learn how large the files are; False where the disk takes nothing."""
        if not self._producer.wait_until_settled():
            self._producer.met_full_disk = True
            return False
        state = self._producer.state
        self._bound_bytes = max(state.lengths)
        return True

    # ------------------------------------------------------------------ the end

    @contextmanager
    def _inside(self) -> Iterator[bool]:
        """Hold the lock; True in the outermost call, if that is none of a signal handler in the middle of another."""
        with self._lock:
            self._depth += 1
            try:
                yield self._depth == 1 and not self._is_writing
            finally:
                self._depth -= 1
                if self._producer.is_over:
                    self._release()

    def _release(self) -> None:
        """Give everything back and say what was left, unless an outer call is still in the middle of something."""
        if self._depth or self._is_writing:
            return
        left = self._producer.release()
        if left and self._ring_path:
            reason = f"{left} events could not be written until the end: {self._reason_left}"
            self._diagnostics.add(Notice("kept", self._step, self._ring_path, reason))
        elif left:
            self._lost += left
            reason = f"{left} events could not be written until the end: {self._reason_left}"
            self._diagnostics.add(Notice("lost", self._step, self.path, reason))
        self._missing.reported(in_file=False)

    def flush(self, sync: bool = False) -> None:
        with self._inside():
            if self._producer.is_over:
                return
            self._settle()
            if sync:
                self._files.sync(self._diagnostics.add)
        self._diagnostics.emit()

    def _settle(self, is_end: bool = False) -> None:
        producer = self._producer
        try:
            if not producer.wait_until_settled(_FULL_DISK_PATIENCE_SECONDS):
                if is_end:
                    producer.give_up(_EXIT_SECONDS)
                else:
                    producer.service()  # the reason is said before what follows from it
                    text = "%d events wait in memory until %s can be written again."
                    self._diagnostics.note(logging.ERROR, text, self.stats.pending, self.path)
            producer.service()
        except WorkerUnavailable:
            if not (producer.is_over or is_end or self._is_inside_drain):
                reason = f"no worker writes, and {self.stats.pending} events wait for one"
                self._diagnostics.add(Notice("lost", self._step, self.path, reason))
        self._report_takeover()

    @property
    def _is_inside_drain(self) -> bool:
        """True in a signal handler that comes while this process empties the rings."""
        return self._producer.drain is not None and self._producer.drain.is_busy

    def _report_takeover(self) -> None:
        if self._producer.drain is not None and not self._has_reported_takeover:
            self._has_reported_takeover = True
            text = (
                "No worker process writes %s any more (%s): the training process has written what they left, and goes "
                "on writing it. Nothing is lost; recording costs the training thread more."
            )
            self._diagnostics.note(logging.WARNING, text, self.path, self._producer.supervisor.exhausted)

    def close(self) -> None:
        producer = self._producer
        with self._inside() as is_outermost:
            if producer.is_over:
                return
            try:
                self._settle(is_end=True)
                if is_outermost and self._missing.is_any and producer.is_settled:
                    self._write_missing()
            finally:
                if not producer.is_over:  # a signal handler may have done it meanwhile
                    self._end()
        self._diagnostics.emit()
        # The outer call holds the lock that the monitor may want.
        if is_outermost and threading.current_thread() is not self._monitor:
            self._monitor.join(_EXIT_SECONDS)

    def _write_missing(self) -> None:
        """Write what is missing: no event comes that could have it. Nobody waits for the disk any more."""
        producer = self._producer
        producer.forget_staged()
        size_bytes = producer.state.summary_bytes
        with suppress(WorkerUnavailable):
            if producer.publish(producer.pack(self._missing.event)):
                producer.wait_until_settled()
                producer.give_up(_EXIT_SECONDS)
        producer.take_back()
        self._missing.reported(in_file=producer.state.summary_bytes != size_bytes)

    def _end(self) -> None:
        producer = self._producer
        reason = "the disk takes nothing" if producer.pool.is_stalled else "there was no time"
        self._reason_left = producer.supervisor.exhausted or reason
        self._ring_path = producer.supervisor.kept_in
        if producer.end() and not self._is_writing:  # an outer call may be in the middle of a file
            self._files.trim(producer.state)
        # Not before: a child that is forked meanwhile must be told, or it would wait for a lock that nobody gives back.
        forks.forget(self)

    def look_after(self) -> float | None:
        with self._lock:
            producer = self._producer
            if producer.is_over:
                return None
            producer.service()
            seconds = producer.supervisor.next_look_seconds
            if producer.drain is not None:
                self._report_takeover()
                seconds = None if producer.is_settled else _RETRY_SECONDS
        self._diagnostics.emit()
        return -1 if seconds is None else seconds

    def abandon(self) -> None:
        self._producer.abandon()
        self._diagnostics = Diagnostics()
        self._missing = Missing(self._diagnostics, self.path)
        self._lock = threading.RLock()  # whoever held it in the parent does not exist here
