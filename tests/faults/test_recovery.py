"""A disk that takes something again at a bad moment."""

from __future__ import annotations

import pytest

from instrument.write.worker import PoolMemory
from tests.write.build import gaps, steps, tensor
from tests.write.conftest import OpenSink, sink_at
from tests.write.pools import SMALL_RING, ring, stopped

__all__ = ["sink_at"]
_RECORD_BYTES = 640


def test_a_disk_that_recovers_as_an_event_is_refused(sink_at: OpenSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that was refused since the disk took nothing is said to be missing, though it takes something now."""
    sink = sink_at(1, ring_bytes=SMALL_RING)
    assert sink.write(tensor(0, 100))
    sink.flush()
    taken = [0]
    with stopped(sink), monkeypatch.context() as patch:
        while ring(sink).capacity_bytes - (ring(sink).head - ring(sink).tail) >= _RECORD_BYTES:
            taken.append(len(taken))
            assert sink.write(tensor(taken[-1], 100))
        answers = [True]
        patch.setattr(PoolMemory, "is_stalled", property(lambda memory: bool(answers) and answers.pop()))
        assert not sink.write(tensor(len(taken), 100))
    sink.close()
    assert steps(sink.path) == taken
    assert sink.stats.dropped == 1
    assert [(gap.events, gap.first_step) for gap in gaps(sink.path)] == [(1, len(taken))]
