"""Producer side of the rings: number, copy and publish events, and wait for the workers.

The problem: the training thread has to hand an event over in microseconds, to one of several workers, in an order that
the file keeps. It may be interrupted between any two instructions, by a `KeyboardInterrupt` or by a signal handler that
flushes or closes; and it must never wait for something that will not happen.

The strategy:

- An event is numbered, copied and published in this order, so that an exception in between leaves no gap. Workers
  commit in the order of the numbers (`worker.py`). `_in_flight` remembers the event that is being published; after an
  interruption the ring's head shows whether it was.
- Events go to the same worker while it keeps up. When its ring fills, they go to another worker, which is started on
  first need. Small trainings thus have one worker, which stays awake between two steps.
- A staged array is copied once, to its final place in the ring.
- A record that is larger than a ring is committed by this process as soon as everything before it is committed.
- Each wait is one loop, `_wait`: it receives what workers report, replaces dead ones, and ends when the condition
  holds, when the disk takes nothing, or with `WorkerUnavailable`. Workers that commit nothing for a minute are killed.
- When no worker can be had, `take_over` empties the rings here.

A signal handler may call any method in the middle of another, except `pack`, `publish` and `stage`, which the sink
guards.

Rejected: one ring for all workers. They would need a lock to take records out of it, which somebody has to free when
its holder is killed. Rejected as well: dealing events out in turn. It wakes every worker for every few events.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from instrument.events import Event, StagedArray
from instrument.ringfile import record
from instrument.ringfile.commit import Job, Report
from instrument.ringfile.control import State
from instrument.ringfile.record import Packed
from instrument.write.consumer import Consumer, Drain
from instrument.write.ring import Ring
from instrument.write.supervisor import Supervisor

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A worker with more than this share of its ring unread is busy: the next event goes to another.
_BUSY_SHARE = 0.25
#: From the first event of this size on, all of the rings' memory is made ready.
_LARGE_BYTES = 256 << 10
#: Waiting here is not idling: a look this often guards against a bell that nobody rang.
_WAIT_POLL_MS = 200
#: Workers that commit nothing for this time, though the disk takes what it is given, are killed; if that does not help,
#: waiting ends.
_HANGING_SECONDS = 60.0


class WorkerUnavailable(Exception):
    """Raised when no worker will ever drain the ring, and this process cannot do it either."""


#: An event on its way: its ring, where the head of that stood, and its sequence number. It is published when the head
#: has moved.
_InFlight = tuple[Ring, int, int]


class Producer:
    """The trainer's end of the rings of a supervisor, of `ring_bytes` each.

    `consumer` makes what empties them in this process when there is no worker. With `drop_when_full` no event waits
    for room. Not for several threads at a time: the caller holds the sink's lock. Methods that wait raise
    `WorkerUnavailable`.
    """

    def __init__(
        self, supervisor: Supervisor, ring_bytes: int, drop_when_full: bool, consumer: Callable[[], Consumer],
        report: Report,
    ) -> None:  # fmt: skip
        self.supervisor = supervisor
        self.pool = supervisor.pool
        self.is_over = False
        #: The number of the last event that was published.
        self.last_sequence = 0
        #: What is larger goes through `write_directly`.
        self.largest_record_bytes = supervisor.pool.rings[0].largest_record_bytes
        #: True if what found no room last did so since the disk takes nothing.
        self.met_full_disk = False
        #: How long it took to wait for room.
        self.stalled_seconds = 0.0
        #: What `stage` returned for the next event, by the `id` of each.
        self.staged: dict[int, StagedArray] = {}
        #: Set when this process has taken the place of the workers.
        self.drain: Drain | None = None
        self._ring_bytes = ring_bytes
        self.drops_when_full = drop_when_full
        self._make_consumer = consumer
        self._report = report
        self._direct: Consumer | None = None
        self._rings = supervisor.pool.rings
        self._preferred = 0
        self._is_warm = False
        self._in_flight: _InFlight | None = None
        self._last_state: State | None = None

    @property
    def state(self) -> State:
        """Return the committed state."""
        return self.pool.state if self._last_state is None else self._last_state

    @property
    def is_committed(self) -> bool:
        """Return True if everything that was published is committed."""
        return self.pool.committed_sequence >= self.last_sequence

    # ------------------------------------------------------------------ which worker

    def _choose(self) -> None:
        """Choose the worker for the next event: the same as before unless it is busy, then the least busy one."""
        if len(self._rings) == 1:
            return
        if self._rings[self._preferred].unread_bytes > self._ring_bytes * _BUSY_SHARE:
            self._preferred = min(range(len(self._rings)), key=self._backlog_bytes)
        if not self.supervisor.ensure_started(self._preferred):
            self._preferred = min(self.supervisor.usable, key=self._backlog_bytes)

    def _backlog_bytes(self, index: int) -> int:
        return self._rings[index].unread_bytes

    def _warm_up(self) -> None:
        """Have all of the rings' memory mapped, once."""
        if not self._is_warm:
            self._is_warm = True
            self.supervisor.populate()

    # ------------------------------------------------------------------ parts of the next event

    def stage(self, array: NDArray[Any]) -> StagedArray | None:
        """Return a copy where the next record will have it, valid until that is published; None if there is no room."""
        if not self.staged:
            if array.nbytes > _LARGE_BYTES:
                self._warm_up()
            self._rings[self._preferred].staged_bytes = 0  # an interrupt may have left half of something
            self._choose()
            if self._in_flight is not None:  # what comes next moves a head
                self._count_published()
                self._in_flight = None
        ring = self._rings[self._preferred]
        offset = ring.staged_bytes
        piece = array.data.cast("B")
        place = ring.stage(piece)
        if place is None:
            place = self._wait_to_stage(ring, piece)
        if place is None:
            return None
        staged = StagedArray(array, place, offset)
        self.staged[id(staged)] = staged
        return staged

    def _wait_to_stage(self, ring: Ring, piece: memoryview) -> memoryview | None:
        """Stage where publishing would have to wait for room all the same, with a copy elsewhere."""
        place: memoryview | None = None

        def is_staged() -> bool:
            nonlocal place
            place = ring.stage(piece)
            return place is not None

        if not self.drops_when_full and ring.may_stage(len(piece)):
            self._wait_for_room(is_staged)
        return place

    def discard_staged(self) -> None:
        self._rings[self._preferred].staged_bytes = 0
        self.staged.clear()

    # ------------------------------------------------------------------ an event

    def pack(self, event: Event) -> Packed:
        """Choose a worker for an event, and encode the record for it.

        Raises:
            Exception: the event is none that could be written.
        """
        if not self.staged:
            self._choose()
        return record.pack(event, self.staged, self._rings[self._preferred].staged_bytes)

    def publish(self, packed: Packed) -> bool:
        """Give a record to the worker that `pack` has chosen; False where there is no room."""
        if self._in_flight is not None:
            self._count_published()
        pieces, length, head_offset = packed
        if length > _LARGE_BYTES:
            self._warm_up()
        index, sequence = self._preferred, self.last_sequence + 1
        ring = self._rings[index]
        self._in_flight = sent = (ring, ring.head, sequence)  # in case that something comes between the next two lines
        if not ring.put(pieces, length, sequence, head_offset) and (
            self._must_not_wait()
            or not self._wait_for_room(functools.partial(ring.put, pieces, length, sequence, head_offset))
        ):
            return False
        if self.is_over and self.pool.committed_sequence < sequence:  # closed by a signal handler before it was there
            ring.unpublish(sent[1])
            self._in_flight = None
            return False
        self.last_sequence = sequence
        self._in_flight = None
        if self.drain is not None:
            self.drain.run()
        else:
            self.supervisor.wake(index)
        return True

    def _count_published(self) -> None:
        """Count the last event if it was published: an exception or a signal handler may have come in between."""
        # A signal handler that publishes may come with each call here; no call is between a comparison and its store.
        if self._in_flight is not None:
            ring, head, sequence = self._in_flight
            is_published = ring.head != head
            if is_published and sequence > self.last_sequence:
                self.last_sequence = sequence
        committed = self.pool.committed_sequence  # by this process itself, maybe
        if committed > self.last_sequence:
            self.last_sequence = committed

    def write_directly(self, event: Event, encode: Callable[[int, Event], Job]) -> tuple[State, State] | None:
        """Commit an event that is larger than the ring in this process, when everything before it is committed.

        Return what was committed before it and with it, or None where there is no room for it.

        Raises:
            OSError: it cannot be written; nothing of it is in a file.
        """
        self._count_published()
        if not self.is_committed and (self._must_not_wait() or not self._wait_for_room(lambda: self.is_committed)):
            return None
        if self._direct is None:
            self._direct = self._make_consumer()
        before, committer = self.pool.state, self._direct.committer
        ring = self._rings[self._preferred]
        self._in_flight = (
            ring,
            ring.head,
            self.last_sequence + 1,
        )  # in case that something comes behind the next store
        try:
            event = record.with_arrays(event)
            self.pool.state = committer.apply(before, [encode(self.last_sequence + 1, event)])
        finally:
            committer.close()  # a worker may cut or replace the files before the next time
        self._count_published()
        return before, self.pool.state

    # ------------------------------------------------------------------ waiting

    def wait_until_committed(self, patience_seconds: float = 0.0) -> bool:
        """Wait until everything is committed; return False if the disk takes nothing for `patience_seconds`."""
        self._count_published()
        self._wait(
            lambda: self.is_committed or (self.pool.is_stalled and self.pool.stalled_seconds >= patience_seconds)
        )
        return self.is_committed

    def give_up(self, seconds: float) -> None:
        """Have the workers give up what cannot be written now, and wait up to `seconds` until they did.

        Does nothing where a ring file keeps what cannot be written.
        """
        if self.supervisor.kept_ring_path:
            return
        self.pool.give_up()
        deadline = time.monotonic() + seconds
        self._wait(lambda: self.is_committed or time.monotonic() > deadline)

    def _wait_for_room(self, is_done: Callable[[], bool]) -> bool:
        """Wait until `is_done`; False where the disk takes nothing, for which training does not wait."""
        self.met_full_disk = False

        def is_over() -> bool:
            if is_done():
                return True
            self.met_full_disk = self.pool.is_stalled
            return self.met_full_disk

        started = time.monotonic()
        try:
            self._wait(is_over)
        finally:
            self.stalled_seconds += time.monotonic() - started
        return not self.met_full_disk

    def _must_not_wait(self) -> bool:
        if self.drops_when_full:
            self.met_full_disk = self.pool.is_stalled
        return self.drops_when_full

    def _wait(self, is_done: Callable[[], bool]) -> None:
        """Sleep until `is_done`, looking whenever a worker rings, and replacing workers that die meanwhile.

        Raises:
            WorkerUnavailable: it will not be.
        """
        committed, since, kills = -1, time.monotonic(), 0
        while not self.is_over:
            self.supervisor.clear_bell()
            if is_done():
                return
            if self.drain is not None:
                self.drain.run()
                if is_done():
                    return
                if self.drain.is_busy:  # this is a signal handler inside of it
                    break
            else:
                self.supervisor.wake_busy()
            self.supervisor.sleep(_WAIT_POLL_MS)
            self.service()
            if self.supervisor.exhausted and self.drain is None:
                break
            if committed != self.pool.committed_sequence or self.pool.is_stalled:
                committed, since = self.pool.committed_sequence, time.monotonic()
            elif time.monotonic() - since > _HANGING_SECONDS:
                if kills:
                    break
                self.supervisor.kill_all()  # their successors may have more luck
                kills, since = kills + 1, time.monotonic()
        raise WorkerUnavailable

    def service(self) -> None:
        """Receive what workers report, replace those that died, and take their place when none can be had."""
        if self.is_over:
            return
        if self.drain is None:
            self.supervisor.service()
            if self.supervisor.exhausted:
                self.take_over()
            else:
                self.supervisor.wake_monitor()
        else:
            self.drain.run()

    def take_over(self) -> bool:
        """Do the work of the workers in this process from now on; False if one of them cannot be ended."""
        if not self.supervisor.kill_all():
            return False
        if self.drain is None:
            self.drain = Drain(self.pool, self._make_consumer(), self._report)
        self.drain.run()
        return True

    # ------------------------------------------------------------------ the end

    def end(self) -> bool:
        """End the workers; True if all of them are gone."""
        self.is_over = True
        if self.drain is not None:
            self.drain.close()
        return self.supervisor.end()

    def forget_uncommitted(self) -> None:
        """Count as published only what is committed: the last record was no event that could be missing."""
        self.last_sequence = self.pool.committed_sequence

    def release(self) -> int:
        """Give the shared memory back, at the end of whatever call is the last; return the number of events left.

        What is left stays in the ring file, if there is one.
        """
        state = self.state
        if self._last_state is not None:
            return 0
        self._last_state = state
        left = max(self.last_sequence - state.sequence, 0)
        if not self.supervisor.kept_ring_path:
            self.last_sequence = state.sequence
        self._in_flight = None
        self.discard_staged()
        self.supervisor.release(is_empty=not left)
        del self.supervisor, self.pool, self._rings
        self.drain = None
        return left

    def abandon(self) -> None:
        """Do nothing any more, in a forked child."""
        self.is_over = True
        if self._last_state is None:
            self.supervisor.abandon()
        self._last_state, self.last_sequence = State(), 0
        self.staged = {}
