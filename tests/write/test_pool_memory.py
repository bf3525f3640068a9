"""The memory that a trainer and its workers share: never half a state, and a line of words for each worker."""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from instrument.ringfile import header
from instrument.ringfile.control import State
from instrument.write.pool_memory import PoolMemory
from tests.write.build import ROOT

PAGE = mmap.PAGESIZE


@pytest.fixture
def pool_fd() -> Iterator[int]:
    """Memory for a pool of two workers."""
    with tempfile.TemporaryFile() as file:
        header.initialise(file.fileno(), header.of_this_process("mindspore", 2, PAGE, None))
        yield file.fileno()


WRITE_STATES = """
import select, sys
sys.path.insert(0, sys.argv[2])
from instrument.ringfile.control import State
from instrument.write.pool_memory import PoolMemory
pool = PoolMemory(int(sys.argv[1]))
number = 0
while not select.select([0], [], [], 0)[0]:
    number += 1
    pool.state = State(*[number] * len(State._fields))
print(number)
"""


def test_the_state_is_never_half_written(pool_fd: int) -> None:
    """Read as fast as one can while another process writes: all fields are of one state, and states only grow."""
    pool = PoolMemory(pool_fd)
    command = [sys.executable, "-c", WRITE_STATES, str(pool_fd), str(ROOT)]
    with subprocess.Popen(command, pass_fds=[pool_fd], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        last = changes = 0
        end = time.monotonic() + 1
        while (changes < 10 or time.monotonic() < end) and writer.poll() is None:
            sequence, state = pool.committed_sequence, pool.state
            assert state == State(*[state.sequence] * len(state))
            assert last <= sequence <= state.sequence
            changes += state.sequence > last
            last = state.sequence
        out, _ = writer.communicate(timeout=30)
    assert pool.state == State(*[int(out)] * len(State._fields))


def test_each_worker_has_a_ring_of_its_own(pool_fd: int) -> None:
    """What one process puts into ring 1 another finds there, and not in ring 0; the state is not touched."""
    ours, theirs = PoolMemory(pool_fd), PoolMemory(pool_fd)
    ours.state = State(1, 2, 3, 4, 5, 6, 7)
    for sequence in range(100):
        assert ours.rings[1].put([b"x" * 1000], 1000, sequence)
        chunk = theirs.rings[1].get(theirs.rings[1].tail)
        assert chunk is not None
        assert (chunk.sequence, bytes(chunk.payload)) == (sequence, b"x" * 1000)
        theirs.rings[1].release(chunk.end)
    assert theirs.rings[0].get(0) is None
    assert theirs.state == State(1, 2, 3, 4, 5, 6, 7)
    assert ours.rings[1].tail == ours.rings[1].head


def test_what_a_dead_worker_leaves(pool_fd: int) -> None:
    """The event that it had in hand, unless that is committed; afterwards its words are those of a new worker."""
    pool = PoolMemory(pool_fd)
    assert pool.reset_worker(1) == 0
    pool.claim(1, 8)
    pool.await_turn(1, 7)
    pool.set_awake(1, True)
    assert pool.waiting_for(7) == 1
    pool.state = State(sequence=7)
    assert pool.reset_worker(1) == 8
    assert pool.reset_worker(1) == 0
    assert pool.waiting_for(7) is None
    assert not pool.is_awake(1)
    pool.claim(1, 8)
    pool.state = State(sequence=8)
    assert pool.reset_worker(1) == 0
