"""A worker's main: ring -> codec -> frame -> file.

`python -m instrument.write.worker CONFIG` is a plain child process in a session of its own. It inherits the pool's
shared memory, a bell (eventfd) for each worker and one for the trainer, and one end of a socket pair whose end-of-file
says that the trainer is gone: then it drains its ring and ends. It sleeps unless its bell rings; idle, it costs
nothing.

Each worker encodes ahead; files are appended to in order. While the disk takes nothing, the worker whose turn it is
keeps what it holds and tries again, and the rings keep the rest.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator
from itertools import zip_longest

from instrument.codec.dialects import LAYOUTS
from instrument.events import Event
from instrument.write import commit, memory, message, stream
from instrument.write.ahead import Ahead
from instrument.write.commit import Notice, State
from instrument.write.exports import export_tensors
from instrument.write.ring import AHEAD, MORE, START, Chunk
from instrument.write.shared import Config, PoolMemory

#: One batch of small records is written with one system call; a larger batch would only be seen later.
_BATCH_BYTES = 1 << 20
#: In a loop of small events most of the cost is waking a worker: there, it looks once more so long after its last one,
#: and need not be woken meanwhile.
_LINGER_MS = 2
#: Announcing sleep and publishing an event are ordered by no lock; one look after so long makes up for that.
_LAST_LOOK_MS = 50
#: Waiting for a turn is not idling: a look at the state this often guards against a bell that nobody rang.
_TURN_POLL_MS = 500
#: So often does a worker look for others' commits once the trainer, who would replace a dead worker, is gone.
_ORPHAN_LOOKS = 20
#: Between two attempts to write to a disk that is full; and how long to go on with that when the trainer is gone.
_RETRY_SECONDS = 0.2
_LAST_HOPE_SECONDS = 30.0
_LAST_HOPE_LOOKS = 80
#: So often is an attempt passed over when the file system says that there is no room; quotas it does not tell.
_RETRIES_WITHOUT_ROOM = 10
#: So often does a worker whose trainer seems to be gone look whether it is.
_LAST_LOOKS, _LAST_LOOK_SECONDS = 20, 0.01
_TOUCH_AHEAD_BYTES = 8 << 20
_NICE = 10


class Worker:
    """Takes events out of one ring until the trainer is gone and the ring is empty."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._index = config.worker
        self._pool = PoolMemory(config.memory, len(config.bells), config.ring_bytes)
        self._ring = self._pool.rings[config.worker]
        self._bell = config.bells[config.worker]
        self._socket = socket.socket(fileno=config.socket)
        self._poll = select.poll()
        self._poll.register(self._bell, select.POLLIN)
        self._poll.register(self._socket, select.POLLIN)
        self._layout = LAYOUTS[config.dialect]
        self._paths = config.paths  # of all files, as far as they are known
        self._committer = commit.Committer(config.max_file_bytes, self._report, self._layout)
        # Whoever else was started for this ring is dead before this one looks into it.
        fcntl.lockf(config.memory, fcntl.LOCK_EX, 1, config.worker)
        self._position = self._ring.tail
        self._touched_bytes = 0
        self._lingers = self._trainer_is_gone = False
        self._pool.come_to_life(self._index)
        self._pool.set_awake(self._index, True)

    def run(self) -> None:
        while True:
            self._clear_bell()
            while self._work():
                self._release()
            if self._trainer_is_gone:
                break
            self._touch_ahead()
            self._rest()
        self._committer.close()
        is_empty = all(ring.head == ring.tail for ring in self._pool.rings)
        if is_empty and self._is_last():  # a predecessor may have died in a large event
            commit.trim(self._paths, self._pool.state)

    def _is_last(self) -> bool:
        """Whether nobody comes after this: an interrupt in the trainer can leave a worker that it knows nothing of."""
        for _ in range(_LAST_LOOKS):
            if self._pool.is_over or os.getppid() != self._config.trainer:
                return True
            time.sleep(_LAST_LOOK_SECONDS)  # of a process that ends the sockets go first
        return False

    def _release(self) -> None:
        self._ring.release(self._position)
        os.eventfd_write(self._config.trainer_bell, 1)

    def _rest(self) -> None:
        """Sleep until there may be something: in a loop for a moment as one who is awake, then until the bell rings."""
        if self._lingers:
            self._wait(_LINGER_MS)
            if self._has_news():
                return
        began = time.monotonic()
        self._pool.set_awake(self._index, False)
        for timeout_ms in (0, _LAST_LOOK_MS, None):
            self._wait(timeout_ms)
            if self._has_news():
                break
        self._pool.set_awake(self._index, True)
        self._lingers = time.monotonic() - began < _LINGER_MS / 1000

    def _has_news(self) -> bool:
        return self._trainer_is_gone or self._ring.head != self._position

    def _work(self) -> bool:
        """Encode and commit what the ring holds, up to a batch of consecutive events; False where it holds nothing."""
        chunk = self._ring.get(self._position)
        if chunk is None:
            return False
        if chunk.flags != START:
            self._take_stream(chunk)
            return True
        jobs: list[commit.Job] = []
        size = 0
        while chunk is not None and chunk.flags == START and size < _BATCH_BYTES:
            if jobs and chunk.sequence != jobs[-1].sequence + 1:
                break
            self._position = chunk.end
            size += len(chunk.payload)
            if chunk.sequence > self._pool.committed_sequence:
                self._pool.take_in_hand(self._index, chunk.sequence)
                jobs.append(self._encode(chunk))
            chunk = self._ring.get(self._position)
        if jobs:
            self._commit(jobs)
        return True

    def _encode(self, chunk: Chunk) -> commit.Job:
        exports = bool(self._config.export_directory)
        encodes = not (exports or self._layout.has_tensorboard)
        event, further = message.unpack(chunk.payload, chunk.head_offset, encodes)
        paths = self._note(further)
        if chunk.sequence in self._config.given_up:
            return commit.lose(chunk.sequence, event, paths, "workers die of it", self._report, self._layout)
        if exports:
            export_tensors(event, self._config.export_directory, self._report)
        job = commit.encode(chunk.sequence, event, paths, self._report, self._layout)
        return self._with_ahead(job, event) if event.ahead else job

    def _note(self, further: message.Paths) -> tuple[str, ...]:
        """The paths of an event's files; those that it needs are remembered."""
        paths = (self._paths[0], *further)
        self._paths = [one or known for one, known in zip_longest(paths, self._paths, fillvalue="")]
        return paths

    # ------------------------------------------------------------------ events larger than the ring

    def _take_stream(self, first: Chunk) -> None:
        """Write an event while it comes in."""
        self._position = first.end
        if not first.flags & START or first.sequence <= self._pool.committed_sequence:
            return  # what went before was a predecessor's; the trainer sends the event again
        self._pool.take_in_hand(self._index, first.sequence)
        arrivals = self._arrivals(bytes(first.payload))
        if first.flags & AHEAD:
            self._write_ahead(first.sequence, arrivals)
            self._pool.take_in_hand(self._index, 0)
            return
        try:
            job = self._begin(first.sequence, arrivals)
            try:
                self._await_turn(job.sequence)
                state = self._committer.apply(self._pool.state, [job])
            except OSError as error:
                self._report(Notice("lost", job.step, job.paths[0], os.strerror(error.errno or 0)))
                job = job.without_frames()
                state = self._committer.apply(self._pool.state, [job])
            for _ in arrivals:
                pass  # what a refused or broken event still has to say
        except stream.Abandoned:
            return
        self._publish(state)

    def _begin(self, sequence: int, arrivals: Iterator[memoryview]) -> commit.Job:
        def arrive() -> memoryview:
            return next(arrivals)

        bare, further, parts = message.unpack_head(stream.gather_head(arrive))
        layout, paths = self._layout, self._note(further)
        if sequence in self._config.given_up:
            return commit.lose(sequence, bare, paths, "workers die of it", self._report, layout)
        try:
            exports = bool(self._config.export_directory)
            event, copy = stream.begin(bare, parts, arrive, layout, is_whole=exports)
            if exports:
                export_tensors(event, self._config.export_directory, self._report)
            job = commit.begin(sequence, event, paths, arrive, layout, copy)
            return self._with_ahead(job, event) if event.ahead else job
        except Exception as error:
            if isinstance(error, stream.Abandoned):
                raise
            # What it says is missing before it, the next one says again.
            return commit.lose(sequence, bare, paths, f"it cannot be encoded: {error!r:.500}", self._report, layout)

    def _arrivals(self, head: bytes) -> Iterator[memoryview]:
        """The chunks of a large event, each valid until the next is asked for.

        Raises:
            Abandoned: the trainer is gone, or has begun something else.
        """
        yield memoryview(head)
        flags = MORE
        while flags & MORE:
            self._release()
            while (chunk := self._ring.get(self._position)) is None:
                if self._trainer_is_gone:
                    raise stream.Abandoned
                self._rest()
                self._clear_bell()
            if chunk.flags & START:
                raise stream.Abandoned
            self._position, flags = chunk.end, chunk.flags
            yield chunk.payload

    def _write_ahead(self, sequence: int, arrivals: Iterator[memoryview]) -> None:
        """Write a tensor while it comes in, before its event is known. What fails is not told: the trainer sends it
        again with its event."""
        self._pool.ahead = Ahead()

        def arrive() -> memoryview:
            return next(arrivals)

        try:
            bare, further, parts = message.unpack_head(stream.gather_head(arrive))
            written = Ahead(bare.step)
            if sequence not in self._config.given_up:
                try:
                    event, _ = stream.begin(bare, parts, arrive, self._layout, is_whole=False)
                    job = commit.begin(sequence, event, self._note(further), arrive, self._layout)
                    self._await_turn(sequence)
                    written = self._committer.write_ahead(self._pool.state, job)
                except stream.Abandoned:
                    raise
                except Exception:  # noqa: BLE001  what cannot be written or encoded is told with its event
                    pass
            for _ in arrivals:
                pass
        except stream.Abandoned:
            return
        self._pool.ahead = written
        os.eventfd_write(self._config.trainer_bell, 1)

    def _with_ahead(self, job: commit.Job, event: Event) -> commit.Job:
        """The job with the tensor of its event that was written before."""
        written = self._pool.ahead
        if job.failed:
            return job
        if (written.ticket, written.sequence) != (event.ahead, job.sequence):
            return commit.lose_with_ahead(job, self._report, self._layout)
        return job._replace(ahead=written, tail=written.tail(event.wall_time, event.step))

    # ------------------------------------------------------------------ in order, into the files

    def _commit(self, jobs: list[commit.Job]) -> None:
        self._await_turn(jobs[0].sequence)
        began = 0.0
        while True:
            try:
                state = self._committer.apply(self._pool.state, jobs)
                break
            except OSError as error:
                if self._gives_up(began):
                    self._commit_what_fits(jobs)
                    self._pool.set_stalled(self._index, 0)
                    return
                if not began:
                    began = time.monotonic()
                    self._stall(jobs[0], os.strerror(error.errno or 0), began)
                self._wait_for_room(jobs)
        if began:  # now: who is woken by what follows must not take the disk for full
            self._pool.set_stalled(self._index, 0)
        self._publish(state)

    def _gives_up(self, began: float) -> bool:
        """Whether what cannot be written has no future; `began` is when that was first found, 0 for just now."""
        is_late = began > 0 and time.monotonic() - began > _LAST_HOPE_SECONDS
        return self._pool.is_closing or (self._trainer_is_gone and is_late)

    def _stall(self, job: commit.Job, reason: str, began: float) -> None:
        """Let the trainer know that it must not wait for what is in the rings."""
        self._report(Notice("stalled", job.step, job.paths[0], reason))  # first: who sees it shall know why
        self._pool.set_stalled(self._index, int(began * 1000))
        os.eventfd_write(self._config.trainer_bell, 1)

    def _wait_for_room(self, jobs: list[commit.Job]) -> None:
        """Return when it is time to try again."""
        needed = sum(job.total_bytes for job in jobs)
        # What is written in part and cut off again is seen by whoever reads the file meanwhile.
        for _ in range(_RETRIES_WITHOUT_ROOM):
            until = time.monotonic() + _RETRY_SECONDS
            while (rest := until - time.monotonic()) > 0 and not self._pool.is_closing:
                self._wait(int(rest * 1000) + 1)
                self._clear_bell()
            if self._pool.is_closing or _free_bytes(jobs[0].paths[0]) > needed:
                break

    def _commit_what_fits(self, jobs: list[commit.Job]) -> None:
        """The last chance: what is too large for the room that is left is lost, what is smaller is not."""
        for job in jobs:
            event = Event(job.step, 0.0, job.gaps)
            gap = commit.lose(job.sequence, event, job.paths, "the disk is full", lambda notice: None, self._layout)
            attempts = [job, gap] if job.events else [job]
            for attempt in attempts:
                try:
                    state = self._committer.apply(self._pool.state, [attempt])
                    break
                except OSError as error:
                    if attempt is job and job.events:
                        self._report(Notice("lost", job.step, job.paths[0], os.strerror(error.errno or 0)))
            else:
                state = self._committer.apply(self._pool.state, [job.without_frames()])
            self._publish(state)

    def _publish(self, state: State) -> None:
        self._pool.state = state
        # The system call orders the store above before the look at who waits.
        os.eventfd_write(self._config.trainer_bell, 1)
        waiting = self._pool.waiting_for(state.sequence + 1)
        if waiting is not None:
            os.eventfd_write(self._config.bells[waiting], 1)

    def _await_turn(self, sequence: int) -> None:
        if self._pool.committed_sequence == sequence - 1:
            return
        self._pool.await_turn(self._index, sequence)
        waited, seen = 0, -1
        while (committed := self._pool.committed_sequence) != sequence - 1:
            waited = waited + 1 if self._trainer_is_gone and committed == seen else 0
            if waited > (_LAST_HOPE_LOOKS if self._pool.is_stalled else _ORPHAN_LOOKS):
                sys.exit(1)
            seen = committed
            self._wait(_TURN_POLL_MS)
            self._clear_bell()
        self._pool.await_turn(self._index, 0)

    def _wait(self, timeout_ms: int | None) -> None:
        """Sleep until the bell rings or the trainer is gone."""
        for fd, _ in self._poll.poll(timeout_ms):
            if fd != self._bell:
                self._trainer_is_gone = True
                self._poll.unregister(self._socket)

    def _clear_bell(self) -> None:
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass

    def _touch_ahead(self) -> None:
        """Have the kernel provide pages before the trainer needs them."""
        goal = min(memory.round_up(self._ring.head + _TOUCH_AHEAD_BYTES), self._ring.capacity_bytes)
        if goal > self._touched_bytes:
            memory.populate(self._ring.data[self._touched_bytes : goal])
            self._touched_bytes = goal

    def _report(self, notice: Notice) -> None:
        try:
            self._socket.send(marshal.dumps(tuple(notice)), socket.MSG_DONTWAIT)
        except OSError:
            pass  # the trainer is gone or cannot listen; the counts in shared memory say it too


def _free_bytes(path: str) -> int:
    try:
        status = os.statvfs(os.path.dirname(path))
    except OSError:
        return sys.maxsize  # whatever is wrong there, an attempt will tell
    return status.f_bavail * status.f_frsize


def _give_way() -> None:
    """Training comes first: being woken must not take its processor away in the middle of a record."""
    try:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
        os.nice(_NICE)
    except (OSError, AttributeError):
        pass  # not on this system, or not in this container


def main(argument: str) -> None:
    # The trainer decides when a worker ends: a signal to the whole job must not cost what was recorded before it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _give_way()
    Worker(Config.from_argument(argument)).run()


if __name__ == "__main__":
    main(sys.argv[1])
