"""What is missing is said in the file, whatever becomes of the event that says it, and every event is counted once."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from instrument.ringfile import commit
from instrument.ringfile.control import State
from instrument.values import ArrayItem, Event, Gap
from instrument.write.pool import PoolSink
from instrument.write.pool_memory import PoolMemory
from tests.write.build import custom, full_disk, gaps, scalar, steps, tensor, wait_until
from tests.write.conftest import OpenSink
from tests.write.pools import SMALL_RING, messages, ring, stopped

WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])
needs_pwritev = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="this system has no pwritev to stand in for")
needs_pool = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no pool")
UNENCODABLE = Event(5, 1.0, [ArrayItem("no kind", "t", np.ones(3))])


def add_missing(sink: PoolSink, step: int) -> None:
    """As if the disk had not taken an event."""
    sink._gaps.add(step, "the disk took nothing")


# ---------------------------------------------------------------------- at the size limit


@needs_pwritev
def test_an_event_beyond_the_limit_joins_what_is_missing(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was missing before it is told with it, by the next event that fits."""
    sink = sink_at(0, max_file_bytes=300)
    assert sink.write(scalar(0))
    with full_disk(monkeypatch):
        assert not sink.write(scalar(1))
    assert not sink.write(tensor(2, 1000))
    assert sink.write(scalar(3))
    sink.close()
    assert steps(sink.path) == [0, 3]
    assert [(gap.events, gap.first_step, gap.last_step) for gap in gaps(sink.path)] == [(2, 1, 2)]
    assert (sink.stats.events, sink.stats.dropped, sink.stats.lost) == (2, 1, 1)
    (said,) = [message for message in messages(caplog) if "events are missing from" in message]
    assert said.startswith("2 events are missing")
    assert said.endswith("the file says so at its place.")


@needs_pool
@pytest.mark.parametrize("at_the_start", [False, True])
def test_a_pools_event_beyond_the_limit_joins_what_is_missing(sink_at: OpenSink, at_the_start: bool) -> None:
    """With workers too; where no event comes any more the file says so at its end."""
    sink = sink_at(1, max_file_bytes=300)
    assert sink.write(scalar(0))
    if at_the_start:
        assert not sink.write(tensor(1, 1000))
    add_missing(sink, 2)
    assert not sink.write(tensor(3, 1000))
    sink.close()
    assert steps(sink.path) == [0]
    assert [(gap.events, gap.last_step) for gap in gaps(sink.path)] == [(2 + at_the_start, 3)]
    assert sink.stats.dropped == 1 + at_the_start


@WORKERS
def test_a_full_summary_does_not_cost_lineage(sink_at: OpenSink, workers: int) -> None:
    """What the full file cannot say any more is no reason to refuse an event of its twin."""
    sink = sink_at(workers, max_file_bytes=300)
    assert not sink.write(tensor(1, 1000))
    add_missing(sink, 2)
    assert sink.write(custom(3))
    sink.close()
    assert (sink.stats.events, sink.stats.dropped, sink.stats.lost) == (1, 1, 0)


# ---------------------------------------------------------------------- an event that is lost itself


@WORKERS
def test_an_event_that_cannot_be_encoded_says_what_is_missing(sink_at: OpenSink, workers: int) -> None:
    """Its own place in the file says that it is missing, and what was missing before it."""
    sink = sink_at(workers)
    assert sink.write(scalar(0))
    add_missing(sink, 3)
    sink.write(UNENCODABLE)
    assert sink.write(scalar(6))
    sink.close()
    assert steps(sink.path) == [0, 6]
    assert sum(gap.events for gap in gaps(sink.path)) == 2
    assert gaps(sink.path)[0].first_step == 3
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (2, 1, 0)


def test_a_lost_job_keeps_what_it_says(tmp_path: Path) -> None:
    """Also where it is only lost when it is to be written: its job knows."""
    paths = (str(tmp_path / "summary"), "")
    gap = commit.gap_item(Gap(7, 1, 9, "the disk took nothing"))
    job = commit.encode(1, scalar(10)._replace(items=[gap]), paths, lambda notice: None)
    lost = commit.lost_job(1, Event(job.step, 0.0, job.gaps), paths, "the disk is full", lambda notice: None)
    commit.Committer(None, lambda notice: None).apply(State(), [lost])
    assert [found.events for found in gaps(paths[0])] == [7, 1]


# ---------------------------------------------------------------------- a disk that takes nothing


@needs_pool
def test_a_refused_event_is_missing_though_the_disk_takes_things_again(
    sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the refusal and the counting the disk may recover: what was refused is in the gap all the same."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    looks = iter([True])
    with stopped(sink):
        taken = 0
        while ring(sink).head - ring(sink).tail < SMALL_RING - 1000:
            assert sink.write(tensor(taken, 100))
            taken += 1
        with monkeypatch.context() as patch:
            patch.setattr(PoolMemory, "is_stalled", property(lambda pool: next(looks, False)))
            assert not sink.write(tensor(1000, 1000))
    sink.close()
    assert steps(sink.path) == list(range(taken))
    assert [(gap.events, gap.first_step) for gap in gaps(sink.path)] == [(1, 1000)]
    assert sink.stats.dropped == 1


@needs_pool
@pytest.mark.parametrize("count", [1, 3])
def test_near_the_limit_while_the_disk_takes_nothing(sink_at: OpenSink, tmp_path: Path, count: int) -> None:
    """What was answered True is there in the end, and each event is counted once."""
    limit = 4000
    directory = tmp_path / "run"
    sink = sink_at(count, directory=directory, max_file_bytes=limit)
    assert sink.write(scalar(0))
    sink.flush()
    shutil.rmtree(directory)
    directory.write_text("in the way")
    answers = [sink.write(tensor(step, 100)) for step in range(1, 100)]
    assert 1 < answers.count(True) < 20
    directory.unlink()
    wait_until(lambda: sink.stats.pending == 0)
    sink.close()
    assert os.path.getsize(sink.path) <= limit
    stats = sink.stats
    assert (stats.events + stats.dropped, stats.lost, stats.pending) == (100, 0, 0)
    found = steps(sink.path)
    assert found == list(range(1, len(found) + 1))
    # The one at which the disk turned out to take nothing may have been taken in vain.
    assert answers.count(True) - len(found) in (0, 1)
    assert sum(gap.events for gap in gaps(sink.path)) in (0, answers.count(False))


@pytest.mark.alone
@needs_pool
def test_the_end_does_not_wait_for_a_disk_that_takes_nothing(sink_at: OpenSink, tmp_path: Path) -> None:
    """Where nothing but a gap is left to be written, it is tried once."""
    directory = tmp_path / "run"
    sink = sink_at(1, directory=directory, ring_bytes=SMALL_RING)
    assert sink.write(scalar(0))
    sink.flush()
    shutil.rmtree(directory)
    directory.write_text("in the way")
    assert not sink.write(tensor(1, 100_000))  # larger than the ring, it cannot wait there
    started = time.monotonic()
    sink.close()
    assert time.monotonic() - started < 5
    assert (sink.stats.events, sink.stats.lost, sink.stats.pending) == (1, 1, 0)
