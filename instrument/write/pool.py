"""The sink with workers: events go into rings in shared memory, and worker processes encode them and write in order.

The problem: recording must cost the training thread microseconds, while encoding a histogram or a picture and waiting
for a disk take milliseconds to seconds. Nothing that was taken may be lost, whichever process ends, and nothing that
goes wrong here may stop or hold up the training.

The strategy:

- `write` copies an event into the ring of one worker and rings its bell (`producer.py`): no waiting, no encoding, no
  file. A record that is larger than the ring is written by this process, after everything before it.
- Workers outlive this process until they have written what it published. A dead worker is replaced (`supervisor.py`);
  the monitor thread, which sleeps on their sockets, sees its end, and so does a call that waits for it.
- When no worker can be had any more, this process empties the rings itself, with the code of a worker (`consumer.py`).
- While the disk takes nothing, events stay in the rings. When these are full, `write` returns False at once, and the
  first event that finds room again records the gap in the file.
- Near a limit of size only the encoded event tells whether it fits, so `write` waits for it there, and only there.
- A signal handler may call any method in the middle of any other. A `write` inside a `write` is refused (`BaseSink`).
  If a call that `close` interrupted still uses a resource, that call releases it when it returns.

Rejected: a thread that encodes. It shares the interpreter lock with the training, which then pays for all of it. If
the process dies, everything it had not written is lost. Rejected as well: a `multiprocessing.Queue`. It pickles each
event, has a thread of its own, and holds its content in memory that ends with its processes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from instrument import forks
from instrument.events import Event, StagedArray
from instrument.ringfile import commit
from instrument.ringfile.commit import Diagnostic, Job
from instrument.ringfile.control import MAX_WORKERS
from instrument.undo import UndoOnError
from instrument.write.consumer import Consumer
from instrument.write.diagnostics import RING_FULL
from instrument.write.limits import full_files, may_have_gap, upper_bound_bytes
from instrument.write.npy_export import export_tensors
from instrument.write.pool_memory import round_up
from instrument.write.producer import Producer, WorkerUnavailable
from instrument.write.sink import BaseSink, Files, Stats
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
#: A training that was held up this long in all is warned.
_REPORTED_STALL_SECONDS = 1.0
#: Between two attempts of this process to write what a disk did not take.
_RETRY_SECONDS = 0.2


class PoolSink(BaseSink):
    """Write through `workers` processes with `ring_bytes` of shared memory between them.

    Raises:
        OSError, RuntimeError: shared memory, descriptors, a process or a thread are not to be had.
    """

    def __init__(
        self, files: Files, workers: int, ring_bytes: int = DEFAULT_RING_BYTES, drop_when_full: bool = False
    ) -> None:
        super().__init__(files)
        count = min(workers, MAX_WORKERS)
        self._max_file_bytes = files.target.max_file_bytes
        self._bound_bytes = files.summary_bytes
        limit = self._max_file_bytes
        self._reserve_bytes = 0 if limit is None else commit.gap_bytes(limit, files.layout)
        self._depth = 0
        self._step = 0
        self._reason_left = self._ring_path = ""
        ring_bytes = round_up(max(ring_bytes // count, _LEAST_RING_BYTES))
        supervisor = Supervisor(files, self._diagnostics, count, ring_bytes)
        self._producer = Producer(supervisor, ring_bytes, drop_when_full, self._make_consumer, self._diagnostics.add)
        with UndoOnError(supervisor.shut_down):
            self._monitor = supervisor.monitor.start(self)
        files.on_created = self._producer.pool.set_name
        forks.register(self)

    def _make_consumer(self) -> Consumer:
        """Return the consumer of this process, for large records and when it takes over."""
        files = self._files
        poisoned = self._producer.supervisor.poison.poisoned(1)  # what has ended a worker could end the training
        return Consumer(self._producer.pool, files.target.directory, poisoned, self._diagnostics.add)

    @property
    def stats(self) -> Stats:
        with self._lock:
            producer, state = self._producer, self._producer.state
            return Stats(
                state.events, sum(state.lengths), max(producer.last_sequence - state.sequence, 0),
                producer.stalled_seconds, self._dropped + state.refused, self._lost + state.lost,
                self._diagnostics.errors,
            )  # fmt: skip

    # ------------------------------------------------------------------ one event

    def stage(self, array: NDArray[np.generic]) -> StagedArray | None:
        with self._lock:
            if self._closed or self._is_writing or not array.size:
                return None
            self._is_writing = True
            try:
                return self._producer.stage(array)
            except WorkerUnavailable:
                return None  # the write reports it
            finally:
                self._is_writing = False
                if self._closed:  # by a signal handler meanwhile
                    self._release()  # type: ignore[unreachable]

    def _write(self, event: Event) -> bool:
        producer = self._producer
        self._step = event.step
        try:
            if self._max_file_bytes is not None:
                return self._write_within(self._max_file_bytes, event)
            if not self._gaps.is_open:
                return self._send(event)
            if not self._send(self._gaps.prepend_to(event)):
                return False
            self._gaps.close()
            return True
        except WorkerUnavailable:
            return not self._closed and self._record_loss(event.step, "no worker takes it")
        finally:
            if producer.staged:
                producer.discard_staged()

    def _send(self, event: Event) -> bool:
        """Give an event to a worker; return False where it was not taken, which was counted and reported."""
        producer = self._producer
        try:
            paths = self._files.further_paths(event) if event.items or self._tags else ()
            if self._tags is not None:
                event = self._tags.with_aliases(event)
            packed = producer.pack(event)
        except OSError as error:
            return self._record_loss(event.step, os.strerror(error.errno or 0))
        except Exception as error:  # noqa: BLE001  values are the user's: one event's fault must not stop training
            return self._record_loss(event.step, f"it cannot be encoded: {error!r:.500}")
        if packed[1] > producer.largest_record_bytes:
            return self._write_directly(event, paths)
        if not producer.publish(packed):
            return not self._closed and self._record_drop()
        if producer.stalled_seconds > _REPORTED_STALL_SECONDS and producer.drain is None:
            self._diagnostics.note_stall(self.path, self._step, producer.drops_when_full)
        return not self._closed

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
            return self._record_loss(event.step, os.strerror(error.errno or 0))
        if states is None:
            return self._record_drop()
        before, after = states
        return after.lost == before.lost

    def _record_drop(self) -> bool:
        """Count an event for which there is no room: False."""
        self._dropped += 1
        if self._producer.met_full_disk:
            self._gaps.add(self._step, "the disk took nothing")
        else:
            self._gaps.add(self._step, RING_FULL)
            self._diagnostics.note_stall(self.path, self._step, self._producer.drops_when_full)
        return False

    # ------------------------------------------------------------------ the size limit

    def _write_within(self, limit: int, event: Event) -> bool:
        """Write an event to files with a size limit. Near it only the encoded size tells whether the event is in the
        file, so it is waited for; where the disk takes nothing meanwhile, or no worker writes, it may still be refused.
        """
        producer, reason = self._producer, commit.limit_reason(limit)
        if full_files(producer.state, event, self._files.layout)[1]:
            self._dropped += 1
            self._gaps.add(event.step, reason)
            return False
        has_gap = self._gaps.is_open and may_have_gap(producer.state, event, self._files.layout)
        whole = self._gaps.prepend_to(event) if has_gap else event
        bound_bytes = upper_bound_bytes(whole, self._files.layout) + self._reserve_bytes
        is_near = self._bound_bytes + bound_bytes > limit
        if is_near and not self._measure():
            return self._record_drop()
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
        if has_gap and is_in_first:
            self._gaps.close()
        if not is_near or after.refused == before.refused:
            return True
        if not is_in_first:
            self._gaps.add(event.step, reason)
        return False

    def _measure(self) -> bool:
        """Wait for what was sent, and read how large the files are; return False where the disk takes nothing."""
        if not self._producer.wait_until_committed():
            self._producer.met_full_disk = True
            return False
        state = self._producer.state
        self._bound_bytes = max(state.lengths)
        return True

    # ------------------------------------------------------------------ the end

    @contextmanager
    def _outermost(self) -> Iterator[bool]:
        """Hold the lock; yield True in the outermost call, unless it came in the middle of a `write`."""
        with self._lock:
            self._depth += 1
            try:
                yield self._depth == 1 and not self._is_writing
            finally:
                self._depth -= 1
                if self._closed:
                    self._release()

    def _release(self) -> None:
        """Give everything back and report what was left, unless an outer call is still in the middle of something."""
        if self._depth or self._is_writing:
            return
        left = self._producer.release()
        reason = f"{left} events could not be written until the end: {self._reason_left}"
        if left and self._ring_path:
            self._diagnostics.add(Diagnostic("kept", self._step, self._ring_path, reason))
        elif left:
            self._lost += left
            self._report_lost(self._step, reason)
        self._gaps.close(in_file=False)

    def flush(self, sync: bool = False) -> None:
        with self._outermost():
            if self._closed:
                return
            self._flush_rings()
            if sync:
                self._files.sync(self._diagnostics.add)
        self._diagnostics.emit()

    def _flush_rings(self, is_end: bool = False) -> None:
        producer = self._producer
        try:
            if not producer.wait_until_committed(_FULL_DISK_PATIENCE_SECONDS):
                if is_end:
                    producer.give_up(_EXIT_SECONDS)
                else:
                    producer.service()  # the reason is logged before what follows from it
                    text = "%d events wait in memory until %s can be written again."
                    self._diagnostics.note(logging.ERROR, text, self.stats.pending, self.path)
            producer.service()
        except WorkerUnavailable:
            # A signal handler inside of `drain.run` cannot wait for it.
            is_inside_drain = producer.drain is not None and producer.drain.is_busy
            if not (self._closed or is_end or is_inside_drain):
                reason = f"no worker writes, and {self.stats.pending} events wait for one"
                self._report_lost(self._step, reason)
        self._note_takeover()

    def _note_takeover(self) -> None:
        if self._producer.drain is not None:
            self._diagnostics.note_takeover(self.path, self._producer.supervisor.exhausted)

    def close(self) -> None:
        producer = self._producer
        with self._outermost() as is_outermost:
            if self._closed:
                return
            try:
                self._flush_rings(is_end=True)
                if is_outermost and self._gaps.is_open and producer.is_committed:
                    self._write_gap()
            finally:
                if not self._closed:  # a signal handler may have done it meanwhile
                    self._end()
        self._diagnostics.emit()
        # The outer call holds the lock that the monitor may want.
        if is_outermost and threading.current_thread() is not self._monitor:
            self._monitor.join(_EXIT_SECONDS)

    def _write_gap(self) -> None:
        """Write the gap, for which no further event comes. Nobody waits for the disk any more."""
        producer = self._producer
        producer.discard_staged()
        size_bytes = producer.state.summary_bytes
        with suppress(WorkerUnavailable):
            if producer.publish(producer.pack(self._gaps.event)):
                producer.wait_until_committed()
                producer.give_up(_EXIT_SECONDS)
        producer.forget_uncommitted()
        self._gaps.close(in_file=producer.state.summary_bytes != size_bytes)

    def _end(self) -> None:
        producer = self._producer
        reason = "the disk takes nothing" if producer.pool.is_stalled else "there was no time"
        self._reason_left = producer.supervisor.exhausted or reason
        self._ring_path = producer.supervisor.kept_ring_path
        self._closed = True
        if producer.end() and not self._is_writing:  # an outer call may be in the middle of a file
            self._files.trim(producer.state)
        # Not before: a child that is forked meanwhile must be abandoned, or it waits for a lock that stays held.
        forks.unregister(self)

    def service(self) -> float | None:
        with self._lock:
            producer = self._producer
            if self._closed:
                return None
            producer.service()
            seconds = producer.supervisor.next_look_seconds
            if producer.drain is not None:
                self._note_takeover()
                seconds = None if producer.is_committed else _RETRY_SECONDS
        self._diagnostics.emit()
        return -1 if seconds is None else seconds

    def abandon(self) -> None:
        self._producer.abandon()
        super().abandon()
