"""A worker in the test's own process, an event at a time."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from instrument.ringfile import commit, header, record
from instrument.ringfile.commit import Job
from instrument.ringfile.control import State
from instrument.values import Event
from instrument.write.pool_memory import Config, PoolMemory, create_memory
from instrument.write.ring import RESTART_BYTES
from tests.write.build import ROOT, scalar, steps, wait_until
from tests.write.conftest import OpenSink
from tests.write.pools import process, ring, stopped

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")

RING_BYTES = 64 << 10


class Workshop(NamedTuple):
    """Worker 0 of two, and the trainer's end."""

    worker: Any
    pool: PoolMemory
    path: str
    config: Config

    def publish(self, sequence: int, event: Event) -> None:
        pieces, length, head_offset = record.pack(event)
        assert self.pool.rings[0].put(pieces, length, sequence, head_offset)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    from instrument.write.worker import Worker

    name = "events.out.events.summary.1700000000.0.host_MS"
    ring_path, fd, pool = create_memory(str(tmp_path), header.of_this_process("mindspore", 2, RING_BYTES, None))
    pool.set_name(0, name)
    fds = [os.memfd_create("gate"), *(os.eventfd(0, os.EFD_NONBLOCK) for _ in range(3))]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        config = Config(0, fd, fds[0], fds[1:3], fds[3], theirs.detach(), str(tmp_path), [], 0, os.getpid(), ring_path)
        worker = Worker(config._replace(memory=os.dup(fd)))
        yield Workshop(worker, pool, str(tmp_path / name), config)
        worker._consumer.committer.close()
        worker._socket.close()
        os.close(worker._memory)
    for each in [fd, *fds]:
        os.close(each)


def test_padding_is_given_back_before_anything_is_written(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring that starts again has the room of a page until then, and a slow disk would hold training up."""
    worker, pool, path, _ = workshop
    first, count = pool.rings[0], 0
    while first.head <= RESTART_BYTES:
        count += 1
        workshop.publish(count, scalar(count))
        assert worker._work()
        worker._release()
    before = first.head
    workshop.publish(count + 1, scalar(count + 1))
    end_of_padding = before + RING_BYTES - before % RING_BYTES
    apply, tails = commit.Committer.apply, list[int]()

    def look(self: commit.Committer, state: State, jobs: list[Job]) -> State:
        tails.append(first.tail)
        return apply(self, state, jobs)

    monkeypatch.setattr(commit.Committer, "apply", look)
    assert worker._work()
    assert tails == [end_of_padding]
    assert steps(path) == list(range(1, count + 2))


def test_a_worker_says_itself_that_it_is_stalled(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one that has just said so may be about to go on: training would wait for a full disk."""
    worker, pool, path, _ = workshop
    apply = commit.Committer.apply
    seen: list[bool] = []

    def refuse(self: commit.Committer, state: State, jobs: list[Job]) -> State:
        monkeypatch.setattr(commit.Committer, "apply", apply)
        raise OSError(errno.ENOSPC, "no")

    def wait_for_room(jobs: list[Job]) -> None:
        pool.set_stalled(1, 0)
        seen.append(pool.is_stalled)

    monkeypatch.setattr(commit.Committer, "apply", refuse)
    monkeypatch.setattr(worker, "_wait_for_disk", wait_for_room)
    pool.set_stalled(1, 1)
    workshop.publish(1, scalar(7))
    assert worker._work()
    assert seen == [True]
    assert steps(path) == [7]


def test_nobody_is_woken_by_a_worker_that_seems_stalled(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it has written again it says so first: whoever waits for room would give up otherwise."""
    worker, pool, _, _ = workshop
    publish, apply = worker._publish, commit.Committer.apply
    seen: list[bool] = []

    def refuse(self: commit.Committer, state: State, jobs: list[Job]) -> State:
        monkeypatch.setattr(commit.Committer, "apply", apply)
        raise OSError(errno.ENOSPC, "no")

    def look_and_publish(state: State) -> None:
        seen.append(pool.is_stalled)
        publish(state)

    monkeypatch.setattr(commit.Committer, "apply", refuse)
    monkeypatch.setattr(worker, "_wait_for_disk", lambda jobs: seen.append(pool.is_stalled))
    monkeypatch.setattr(worker, "_publish", look_and_publish)
    workshop.publish(1, scalar(7))
    assert worker._work()
    assert seen == [True, False]


def test_a_successor_skips_what_is_committed(workshop: Workshop) -> None:
    """A worker that dies between committing and giving room back has its events written once all the same."""
    from instrument.write.worker import Worker

    worker, _, path, config = workshop
    for sequence in (1, 2):
        workshop.publish(sequence, scalar(sequence))
    assert worker._work()
    assert worker._ring.tail == 0
    successor = Worker(config._replace(memory=os.dup(config.memory)))
    try:
        successor._trainer_is_gone = True  # who waits for a turn that is over shall not wait for ever
        workshop.publish(3, scalar(3))
        assert successor._work()
        assert successor._position == successor._ring.head
        assert steps(path) == [1, 2, 3]
    finally:
        successor._consumer.committer.close()
        successor._socket.detach()  # it is the first one's


def test_two_processes_for_one_ring(sink_at: OpenSink) -> None:
    """The second looks into the ring when the first is dead, and not before: nothing is there twice."""
    sink = sink_at(1)
    assert sink.write(scalar(0))
    sink.flush()
    wait_until(lambda: ring(sink).tail == ring(sink).head)
    before = ring(sink).tail
    worker = sink._producer.supervisor._spawn(0)
    worker.socket.close()
    second = worker.process
    first = process(sink)
    with stopped(sink):
        assert all(sink.write(scalar(step)) for step in range(1, 100))
        assert not second.wait(1.0)
        assert ring(sink).tail == before
        first.kill()
    assert sink.write(scalar(100))
    sink.close()
    assert steps(sink.path) == list(range(101))
    assert second.wait(20)


RESERVED = """
import fcntl, os, sys
fd = int(sys.argv[1])
for index in range(3):
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        print("free")
    except OSError:
        print("taken")
"""


def test_the_lock_of_a_ring_is_its_workers(sink_at: OpenSink) -> None:
    """It is there as long as the worker lives, for its own ring only."""
    sink = sink_at(3)
    assert sink.write(scalar(0))
    sink.flush()
    fd = sink._producer.supervisor._gate
    command = [sys.executable, "-c", RESERVED, str(fd)]
    said = subprocess.run(command, pass_fds=[fd], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert said.split() == ["taken", "free", "free"]
