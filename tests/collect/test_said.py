"""What the collector says of other callbacks, and of systems that do not tell what they do."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import mindspore as ms
import psutil
import pytest

from instrument import SummaryCollector, SummaryRecord, read
from instrument.collect.system import System
from tests.collect.build import Said
from tests.collect.fake import Loop


def test_mindspores_own_collector_beside_ours(tmp_path: Path, said: Said) -> None:
    """It takes values away; ours goes on."""
    theirs = ms.SummaryCollector(str(tmp_path / "theirs"))
    loop = Loop(SummaryCollector(tmp_path / "ours", num_process=0))
    loop.params.list_callback = [theirs, *loop.callbacks]
    loop.train([1, 2])
    assert len(said("MindSpore's SummaryCollector is among the callbacks too; it takes values")) == 1
    assert len(read(tmp_path / "ours").scalars("loss/auto")) > 0


def test_no_thread_for_samples(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recording goes on without them."""

    def refuse(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        record = SummaryRecord(tmp_path, num_process=0, system_metrics=True)
    record.add_value("scalar", "x", 1.0)
    assert record.record(1)
    record.close()
    assert said("system_metrics are not recorded: RuntimeError: can't start new thread") != []
    assert read(tmp_path).tags() == {"scalar": ["x"]}


def test_a_system_that_counts_no_disk_traffic(tmp_path: Path, said: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in many containers; said once."""
    monkeypatch.setattr(psutil, "disk_io_counters", lambda **_: None)
    observer = System(str(tmp_path))
    for _ in range(2):
        assert not [tag for tag in observer.sample() if "/disk_read" in tag]
    (text,) = said("the system counts nothing")
    assert text.endswith("The other metrics are recorded; this is logged once.")
