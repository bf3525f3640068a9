"""Consumer side of the rings: a record is decoded, encoded for its files, and committed when its turn comes.

The problem: records are consumed in two places, by each worker from its own ring, and by the trainer from all rings
when it has to do without workers; and both must do the same to the same record, or a takeover would lose or repeat
events.

The strategy: `Consumer` is all that is done to one record, and holds the open files; it knows neither processes nor
waiting. The worker's loop (`worker.py`) and `Drain` choose the records. `Drain` takes them in the order of their
numbers, a batch from whichever ring holds the next one, and tries again later while the disk takes nothing.

A record whose bytes are damaged, or which killed its workers, becomes a gap in the file at its place instead of an
event: its number must be committed all the same, since everything behind it waits for that.

Rejected: to have the trainer start a thread for `Drain`. It runs where there may be no thread or process to be had, and
the events that the training records meanwhile need the same files.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from instrument.codec.dialects import LAYOUTS
from instrument.errors import CorruptMessage
from instrument.events import Event
from instrument.ringfile import commit
from instrument.ringfile.commit import Diagnostic, Job, Report
from instrument.ringfile.control import State
from instrument.ringfile.unpack import unpack
from instrument.undo import UndoOnError
from instrument.write.npy_export import export_tensors
from instrument.write.pool_memory import PoolMemory
from instrument.write.ring import Chunk

#: One batch of small records is written with one system call; a larger batch would only be seen later.
BATCH_BYTES = 1 << 20
#: An attempt to write costs a little; where the disk takes nothing, it is made this often.
_RETRY_SECONDS = 0.2


class Consumer:
    """Makes jobs of the records in a ring file's memory, and commits them to the event files in `directory`.

    Records whose numbers are in `poisoned` are reported as lost and leave a gap.
    """

    def __init__(self, pool: PoolMemory, directory: str, poisoned: Sequence[int], report: Report) -> None:
        self.layout = LAYOUTS[pool.header.dialect]
        self._pool = pool
        self._directory = directory
        export = pool.header.export_directory
        self._export_directory = os.path.join(directory, export) if export else ""
        self._poisoned = poisoned
        self._report = report
        self._encodes = not (export or self.layout.has_tensorboard)
        self.committer = commit.Committer(pool.header.max_file_bytes, report, self.layout)
        self.paths = self._read_names()

    def _read_names(self) -> tuple[str, ...]:
        """Return the paths of the event files, empty for one that is not made yet."""
        names = self._pool.names[: len(self.layout.roles)]
        return tuple(os.path.join(self._directory, name) if name else "" for name in names)

    def encode(self, chunk: Chunk) -> Job:
        """Encode a record."""
        try:
            event = unpack(chunk.payload, chunk.head_offset, self._encodes)
        except CorruptMessage as error:
            event = Event(0, time.time())
            reason = f"its record was overwritten in memory: {error}"
            return commit.lost_job(chunk.sequence, event, self.paths, reason, self._report, self.layout)
        if (event.items and not all(self.paths)) or (self.layout.has_tensorboard and not self.paths[-1]):
            self.paths = self._read_names()
        if chunk.sequence in self._poisoned:
            return commit.lost_job(chunk.sequence, event, self.paths, "workers die of it", self._report, self.layout)
        if self._export_directory:
            export_tensors(event, self._export_directory, self._report)
        return commit.encode(chunk.sequence, event, self.paths, self._report, self.layout)

    def trim(self) -> None:
        """Cut off what a writer that died left behind the committed lengths; for when nobody else writes.

        A trainer may have made a file, and died in the middle of its first event, since this consumer last looked.
        """
        commit.trim(self._read_names(), self._pool.state)

    def commit_what_fits(self, state: State, jobs: Sequence[Job], publish: Callable[[State], None]) -> None:
        """Commit one after the other, and lose those for which there is no room."""
        for job in jobs:
            gap = commit.lost_job(
                job.sequence, Event(job.step, 0.0, job.gaps), job.paths, "the disk is full", _ignore, self.layout
            )
            attempts = [job, gap] if job.events else [job]
            for attempt in attempts:
                try:
                    state = self.committer.apply(state, [attempt])
                    break
                except OSError as error:
                    if attempt is job and job.events:
                        self._report(Diagnostic("lost", job.step, job.paths[0], os.strerror(error.errno or 0)))
            else:
                state = self.committer.apply(state, [job.without_frames()])
            publish(state)


class Drain:
    """Empties all rings in this process, in the order of their records' numbers."""

    def __init__(self, pool: PoolMemory, consumer: Consumer, report: Report) -> None:
        self._pool = pool
        self._consumer = consumer
        self._report = report
        self._next_try = 0.0
        #: True while a call of `run` is in progress; a signal handler inside of it cannot wait for it.
        self.is_busy = False

    def run(self) -> None:
        """Commit everything that was published, as far as the disk takes it."""
        if self.is_busy or (self._next_try and time.monotonic() < self._next_try and not self._pool.is_closing):
            return
        self.is_busy = True
        try:
            with UndoOnError(self._consumer.committer.close):  # the next write cuts off what is not committed
                while self._commit_batch():
                    pass
        finally:
            self.is_busy = False

    def _commit_batch(self) -> bool:
        """Commit a batch of consecutive records; return False if there is none, or the disk takes none."""
        pool, rings = self._pool, self._pool.rings
        positions = [ring.tail for ring in rings]
        jobs: list[Job] = []
        size = 0
        sequence = pool.committed_sequence + 1
        while size < BATCH_BYTES:
            for index, ring in enumerate(rings):
                chunk = ring.get(positions[index])
                while chunk is not None and chunk.sequence < sequence:  # it was committed by a worker that died then
                    positions[index] = chunk.end
                    chunk = ring.get(chunk.end)
                if chunk is not None and chunk.sequence == sequence:
                    break
            else:
                break
            positions[index] = chunk.end
            size += len(chunk.payload)
            jobs.append(self._consumer.encode(chunk))
            sequence += 1
        if jobs and not self._commit(jobs):
            return False
        for ring, position in zip(rings, positions, strict=True):
            ring.release(ring.after_padding(position))
        return bool(jobs)

    def _commit(self, jobs: list[Job]) -> bool:
        pool, consumer = self._pool, self._consumer
        try:
            pool.state = consumer.committer.apply(pool.state, jobs)
        except OSError as error:
            if pool.is_closing:
                consumer.commit_what_fits(pool.state, jobs, self._publish)
                return True
            self._next_try = time.monotonic() + _RETRY_SECONDS
            if not pool.is_stalled:
                self._report(Diagnostic("stalled", jobs[0].step, jobs[0].paths[0], os.strerror(error.errno or 0)))
                pool.set_stalled(0, int(time.monotonic() * 1000))
            return False
        self._next_try = 0.0
        pool.set_stalled(0, 0)
        return True

    def _publish(self, state: State) -> None:
        self._pool.state = state

    def close(self) -> None:
        self._consumer.committer.close()


def _ignore(diagnostic: Diagnostic) -> None:
    pass


def free_bytes(path: str) -> int:
    """Return the room on the file system of a file; a very large number if it cannot be asked."""
    try:
        status = os.statvfs(os.path.dirname(path))
    except OSError:
        return sys.maxsize  # an attempt has to show it
    return status.f_bavail * status.f_frsize
