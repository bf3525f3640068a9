"""What the writing side says of ends that come too early, each made to happen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from instrument.write import pool, supervisor
from tests.write.build import scalar, steps, tensor, wait_until
from tests.write.conftest import OpenSink
from tests.write.pools import messages, process, stopped
from tests.write.test_supervisor import NoProcess, impatient, popen

__all__ = ["impatient", "popen"]


@pytest.mark.usefixtures("impatient")
def test_a_flush_without_workers(
    sink_at: OpenSink, popen: NoProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a worker cannot even be killed, it comes back and says how many events wait; what follows is written."""
    sink = sink_at(1)
    sink.write(scalar(0))
    sink.flush()
    popen.refuses = True
    with monkeypatch.context() as patch:
        patch.setattr(supervisor.Supervisor, "kill_all", lambda self: False)
        process(sink).kill()
        wait_until(lambda: bool(sink._producer.supervisor.exhausted))
        assert all(sink.write(scalar(step)) for step in range(1, 4))
        sink.flush()
        assert [one for one in messages(caplog) if "no worker writes, and 3 events wait for one." in one]
    assert sink.write(scalar(4))
    sink.close()
    assert steps(sink.path) == list(range(5))
    assert sink.stats.lost == 0


def test_a_worker_that_stands_still_at_the_end(
    small_disk_of: Callable[[str], Path],
    sink_at: OpenSink,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one does that a file system keeps: `close` comes back without it, and says so."""
    monkeypatch.setattr(pool, "_FULL_DISK_PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(pool, "_EXIT_SECONDS", 0.1)
    monkeypatch.setattr(supervisor, "_EXIT_SECONDS", 0.1)
    disk = small_disk_of("1m")
    sink = sink_at(1, directory=disk)
    (disk / "ballast").write_bytes(bytes(900_000))
    sink.write(tensor(0, 100_000))
    sink.flush()
    worker = process(sink)
    with stopped(sink):
        sink.close()
    assert f"The worker that writes {sink.path} does not end." in messages(caplog)
    worker.wait(20)
