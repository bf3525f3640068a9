"""What a trainer puts into the rings of its workers, and how it waits for them.

- An event is numbered, copied and published in this order, so that an exception in between leaves no gap. Workers
  commit in the order of the numbers (`worker.py`).
- It goes to the worker of the one before as long as that one keeps up, and to another, started when first needed, when
  the ring fills. What `stage` was given lies in the ring already.
- A record larger than a ring is sent in chunks and waited for: until it is committed it could have to be sent again.
- Whoever waits hears what workers say and replaces those that die. Nobody waits for a disk that takes nothing.
- A signal handler may call anything here in the middle of anything else, but `pack`, `publish`, `stream` and `stage`.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from instrument.events import Event
from instrument.write import message, stream
from instrument.write.ahead import Ahead
from instrument.write.commit import State
from instrument.write.crew import Crew
from instrument.write.ring import AHEAD, MORE, START, Ring, chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A worker with more than this share of its ring unread is busy: the next event goes to another.
_BUSY_SHARE = 0.25
#: From the first event of this size on, all of the rings' memory is made ready.
_LARGE_BYTES = 256 << 10
#: Waiting here is not idling: a look this often guards against a bell that nobody rang.
_WAIT_POLL_MS = 200


class GaveUp(Exception):
    """Waiting is in vain: the feed ended meanwhile, or there is no worker and none can be started."""


#: An event on its way: its ring, where the head of that stood, its sequence number, and whether it comes in chunks. It
#: is published when the head has moved.
_Sent = tuple[Ring, int, int, bool]


class Feed:
    """The trainer's end of a pool, over a crew whose rings have `ring_bytes` each.

    `drop_when_full` says that nobody waits for room. Not for several threads at a time: whoever calls holds the sink's
    lock. Whatever waits raises `GaveUp`.
    """

    def __init__(self, crew: Crew, ring_bytes: int, drop_when_full: bool) -> None:
        self.crew = crew
        self._order = functools.partial(stream.order, layout=crew.layout)
        self.pool = crew.pool
        self.is_over = False
        #: The number of the last event that was published.
        self.last_sequence = 0
        #: What is larger goes through `stream`.
        self.largest_record_bytes = crew.pool.rings[0].largest_record_bytes
        #: Whether what found no room last did so since the disk takes nothing.
        self.met_full_disk = False
        #: How long it took to wait for room.
        self.stalled_seconds = 0.0
        #: What `stage` gave for the next event, by the `id` of each.
        self.staged: dict[int, message.Staged] = {}
        self._ring_bytes = ring_bytes
        self._drop_when_full = drop_when_full
        self._rings = crew.pool.rings
        self._favourite = 0
        self._is_warm = False
        #: Whether the favourite was sent a part of an event that nobody has committed.
        self._is_streaming = False
        self._sent: _Sent | None = None
        #: That of the last tensor that was sent ahead of its event.
        self.last_ticket = 0
        self._last_state: State | None = None

    @property
    def state(self) -> State:
        """What is committed."""
        return self.pool.state if self._last_state is None else self._last_state

    @property
    def is_settled(self) -> bool:
        """Whether everything that was published is committed."""
        return self._is_committed(self.last_sequence)

    def _is_committed(self, sequence: int) -> bool:
        return self.pool.committed_sequence >= sequence

    # ------------------------------------------------------------------ which worker

    def _choose(self) -> None:
        """The worker for the next event: the same as before unless it is busy, then the least busy one.

        Who is in the middle of writing an event that never came whole must be the one to get the next: nobody else may
        write before it has taken back what it wrote.
        """
        if self._is_streaming or len(self._rings) == 1:
            return
        if self._rings[self._favourite].unread_bytes > self._ring_bytes * _BUSY_SHARE:
            self._favourite = min(range(len(self._rings)), key=self._backlog_bytes)
        if not self.crew.ensure(self._favourite):
            self._favourite = min(self.crew.employed, key=self._backlog_bytes)

    def _backlog_bytes(self, index: int) -> int:
        return self._rings[index].unread_bytes

    def _make_ready(self, length: int) -> None:
        """From the first large event on, all of the rings' memory is needed."""
        if length > _LARGE_BYTES and not self._is_warm:
            self._is_warm = True
            self.crew.warm()

    # ------------------------------------------------------------------ parts of the next event

    def stage(self, array: NDArray[Any]) -> message.Staged | None:
        """A copy that lies where the next event will need it, valid until that is published; None: no room."""
        if not self.staged:
            if not self._is_warm:
                self._make_ready(array.nbytes)
            self._rings[self._favourite].staged_bytes = 0  # an interrupt may have left half of something
            self._choose()
        ring = self._rings[self._favourite]
        offset = ring.staged_bytes
        piece = array.data.cast("B")
        place = ring.stage(piece)
        if place is None and self._wait_to_stage(ring, len(piece)):
            place = ring.stage(piece)
        if place is None:
            return None
        staged = message.Staged(array, place, offset)
        self.staged[id(staged)] = staged
        return staged

    def _wait_to_stage(self, ring: Ring, length: int) -> bool:
        """Wait where publishing would have to wait all the same, with a copy elsewhere."""
        if self._drop_when_full or not ring.may_stage(length):
            return False
        return self._wait_for_room(lambda: ring.has_room(length))

    def forget_staged(self) -> None:
        self._rings[self._favourite].staged_bytes = 0
        self.staged.clear()

    # ------------------------------------------------------------------ an event

    def pack(self, event: Event, paths: tuple[str, ...]) -> message.Packed:
        """Choose a worker for an event, and make the message for it.

        Raises:
            Exception: the event is none that could be written.
        """
        if not self.staged:
            self._choose()
        return message.pack(event, paths, self.staged, self._rings[self._favourite].staged_bytes)

    def publish(self, packed: message.Packed) -> bool:
        """Give a message to the worker that `pack` has chosen; False where there is no room."""
        if self._sent is not None:
            self._confirm()
        pieces, length, head_offset = packed
        if length > _LARGE_BYTES and not self._is_warm:
            self._make_ready(length)
        index, sequence = self._favourite, self.last_sequence + 1
        ring = self._rings[index]
        self._sent = (ring, ring.head, sequence, False)  # in case that something comes between the next two lines
        if not ring.put(pieces, length, sequence, head_offset) and (
            self._must_not_wait()
            or not self._wait_for_room(functools.partial(ring.put, pieces, length, sequence, head_offset))
        ):
            return False
        self.last_sequence = sequence
        self._sent = None
        self._is_streaming = False
        self.crew.wake(index)
        return True

    def _confirm(self) -> None:
        """Count the last event if it was published: an exception or a signal handler may have come in between."""
        if self._sent is None:
            return
        ring, head, sequence, in_chunks = self._sent
        if sequence <= self.last_sequence or ring.head == head:
            return
        if in_chunks:  # its worker has all of it, unless that died meanwhile
            self._wait(lambda: self._is_committed(sequence) or ring.tail == ring.head)
            if not self._is_committed(sequence):
                return
        self.last_sequence = sequence
        self._is_streaming = False

    def stream(self, event: Event, paths: tuple[str, ...]) -> tuple[State, State] | None:
        """Send a large event through the ring in chunks, and wait until it is done with.

        What was committed before it and with it; None where there is no room for it.
        """
        self._confirm()
        ring = self._rings[self._favourite]
        if ring.head != ring.tail and self._must_not_wait():
            return None
        self._make_ready(self._ring_bytes)
        buffers = self._buffers(event, paths)
        sequence = self.last_sequence + 1
        if not self._wait_for_room(lambda: self._is_committed(sequence - 1)):
            return None
        before = self.state
        self._is_streaming = True
        while not self._is_committed(sequence):
            self._send_in_chunks(buffers, sequence, lambda: self._is_committed(sequence))
        self.last_sequence = sequence
        self._is_streaming = False
        return before, self.state

    def send_ahead(self, event: Event) -> Ahead | None:
        """Have the tensor of an event, which is larger than the ring, written ahead of the next event; None where it
        cannot be. Nothing is staged."""
        self._confirm()
        if self._drop_when_full:
            return None
        self._choose()
        self._make_ready(self._ring_bytes)
        sequence = self.last_sequence + 1
        if not self._wait_for_room(lambda: self._is_committed(sequence - 1)):
            return None
        self.last_ticket = ticket = self.last_ticket + 1
        buffers = message.pack_for_stream(event._replace(step=ticket), ("",), self._order)
        self._is_streaming = True
        while self.pool.ticket != ticket:
            self._send_in_chunks(buffers, sequence, lambda: self.pool.ticket == ticket, AHEAD)
        written = self.pool.ahead
        return written if written.end else None

    def _buffers(self, event: Event, paths: tuple[str, ...]) -> list[bytes | memoryview]:
        """The bytes to send; what was staged gives its place to them."""
        items = [
            item._replace(payload=item.payload.copy()) if id(item.payload) in self.staged else item  # type: ignore[union-attr]
            for item in event.items
        ]
        self.forget_staged()
        items.sort(key=lambda item: item.kind == "tensor")  # what has to be gathered comes first
        return message.pack_for_stream(event._replace(items=items), paths, self._order)

    def _send_in_chunks(
        self, buffers: list[bytes | memoryview], sequence: int, is_done: Callable[[], bool], mark: int = 0
    ) -> None:
        """Send it once, to a worker that may die meanwhile. `mark` is a further flag of the first chunk."""
        index = self._favourite
        ring, process = self._rings[index], self.crew.process(index)
        self._sent = None

        def is_over() -> bool:
            return is_done() or self.crew.process(index) is not process

        for chunk, flags in chunks(buffers, self._ring_bytes // 256 * 64):
            put = functools.partial(
                ring.put, [chunk], len(chunk), sequence, 0, flags | mark if flags & START else flags
            )
            if not (flags & MORE or mark):
                self._sent = (ring, ring.head, sequence, True)
            self._wait(lambda put=put: is_over() or put(), stalls=True)  # type: ignore[misc]
            self.crew.wake(index)
        self._wait(is_over, stalls=True)

    # ------------------------------------------------------------------ waiting

    def wait_until_settled(self, patience_seconds: float = 0.0) -> bool:
        """Wait until everything is committed; False where the disk has taken nothing for so long."""
        self._confirm()
        self._wait(lambda: self.is_settled or (self.pool.is_stalled and self.pool.stalled_seconds >= patience_seconds))
        return self.is_settled

    def give_up(self, seconds: float) -> None:
        """Have the workers give up what cannot be written now, and wait so long until it is settled."""
        self.pool.give_up()
        deadline = time.monotonic() + seconds
        self._wait(lambda: self.is_settled or time.monotonic() > deadline)

    def _wait_for_room(self, is_done: Callable[[], bool]) -> bool:
        """Wait until `is_done`; False where the disk takes nothing, for which training does not wait."""
        self.met_full_disk = False

        def is_over() -> bool:
            if is_done():
                return True
            self.met_full_disk = self.pool.is_stalled
            return self.met_full_disk

        self._wait(is_over, stalls=True)
        return not self.met_full_disk

    def _must_not_wait(self) -> bool:
        if self._drop_when_full:
            self.met_full_disk = self.pool.is_stalled
        return self._drop_when_full

    def _wait(self, is_done: Callable[[], bool], stalls: bool = False) -> None:
        """Sleep until `is_done`, looking whenever a worker rings, and replacing workers that die meanwhile.

        Raises:
            GaveUp: it will not be.
        """
        started = time.monotonic()
        try:
            while not self.is_over:
                self.crew.clear_bell()
                if is_done():
                    return
                self.crew.hurry()
                if self.crew.is_hopeless:
                    break
                self.crew.sleep(_WAIT_POLL_MS)
                self.service()
            raise GaveUp
        finally:
            if stalls:
                self.stalled_seconds += time.monotonic() - started

    def service(self) -> None:
        """Hear what workers say, and replace those that died."""
        if not self.is_over:
            self.crew.service()
            self.crew.hand_over()

    # ------------------------------------------------------------------ the end

    def end(self) -> bool:
        """End the workers; whether all of them are gone."""
        self.is_over = True
        return self.crew.end()

    def take_back(self) -> None:
        """What was published last is no event that could be missing."""
        self.last_sequence = self.pool.committed_sequence

    def release(self) -> int:
        """Give the shared memory back, at the end of whatever call is the last; how many events were left there."""
        state = self.state
        if self._last_state is not None:
            return 0
        self._last_state = state
        left = max(self.last_sequence - state.sequence, 0)
        self.last_sequence = state.sequence
        self._sent = None
        self.forget_staged()
        self.crew.release()
        del self.crew, self.pool, self._rings
        return left

    def abandon(self) -> None:
        """In a forked child: nothing of this is any business of it."""
        self.is_over = True
        if self._last_state is None:
            self.crew.abandon()
        self._last_state, self.last_sequence = State(), 0
        self.staged = {}
