"""A recorder that is used in odd ways: by a signal handler inside `record`, by several threads, with huge values."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn

from instrument import SummaryRecord, ops, read
from instrument.codec import event
from instrument.collect import sources
from instrument.values import Event


def test_a_record_inside_a_record_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., list[str]]
) -> None:
    """As a signal handler may call it: it answers False, and no value is written twice or lost."""
    record = SummaryRecord(tmp_path, num_process=0)
    answers: list[bool] = []
    write = record._sink.write

    def interrupted(event: Event) -> bool:
        monkeypatch.setattr(record._sink, "write", write)
        record.add_value("scalar", "later", 2.0)
        answers.append(record.record(99))
        return write(event)

    monkeypatch.setattr(record._sink, "write", interrupted)
    record.add_value("scalar", "first", 1.0)
    assert record.record(1)
    assert record.record(2)
    record.close()
    run = read(tmp_path)
    assert answers == [False]
    assert run.scalars("first").step.tolist() == [1]
    assert run.scalars("later").step.tolist() == [2]
    assert len(said("inside another call")) == 1


def test_a_record_inside_add_value_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., list[str]]
) -> None:
    """A large array is copied to where the next event goes: another event must not go there before it is added."""
    record = SummaryRecord(tmp_path, num_process=1)
    stage = record._sink.stage
    answers: list[bool] = []

    def interrupted(array: Any) -> Any:
        copy = stage(array)
        record.add_value("scalar", "early", 1.0)
        answers.append(record.record(1))
        return copy

    monkeypatch.setattr(record._sink, "stage", interrupted)
    record.add_value("tensor", "weight", np.arange(100_000.0))
    assert record.record(2)
    record.close()
    run = read(tmp_path)
    assert answers == [False]
    assert run.scalars("early").step.tolist() == [2]
    assert np.array_equal(run.tensors("weight")[2], np.arange(100_000.0))
    assert len(said("inside another call")) == 1


def test_values_added_by_another_thread_are_not_lost(tmp_path: Path) -> None:
    """One thread adds values under names of their own while another records: each is there, once."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        done = threading.Event()

        def add() -> None:
            for number in range(3000):
                record.add_value("scalar", f"tag{number}", float(number))
            done.set()

        thread = threading.Thread(target=add)
        thread.start()
        step = 0
        while not done.is_set():
            assert record.record(step)
            step += 1
        thread.join()
        assert record.record(step)
    run = read(tmp_path)
    found = {tag: run.scalars(tag, superseded=True).value.tolist() for tag in run.tags()["scalar"]}
    assert found == {f"tag{number}": [float(number)] for number in range(3000)}


def test_a_schedule_with_a_state_is_not_computed_again(tmp_path: Path) -> None:
    """A learning rate that changes a parameter of its own would train differently if it were asked once more."""

    class Counting(nn.learning_rate_schedule.LearningRateSchedule):
        def __init__(self) -> None:
            super().__init__()
            self.asked = ms.Parameter(ms.Tensor(0.0, ms.float32), name="asked")

        def construct(self, step: Any) -> Any:
            return self.asked + 1.0

    optimizer = SimpleNamespace(
        learning_rate=Counting(), is_group_lr=False, global_step=ms.Parameter(ms.Tensor([3], ms.int32), name="step")
    )
    with pytest.raises(sources.Uncollectable, match="has parameters"):
        sources.learning_rates(optimizer)
    assert float(np.asarray(optimizer.learning_rate.asked.asnumpy())) == 0.0


def test_a_suffix_that_would_hide_the_file_is_refused(tmp_path: Path) -> None:
    """Files whose names end in `_lineage` are read as lineage."""
    with pytest.raises(ValueError, match="_lineage"):
        SummaryRecord(tmp_path, file_suffix="_MS_lineage")


def test_an_operators_value_that_no_reader_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: Callable[..., list[str]]
) -> None:
    """It is refused as one that is added by hand: one warning with tag and step, everything else is there."""
    monkeypatch.setattr(event, "MAX_PAYLOAD_BYTES", 20_000)
    operator = ops.TensorSummary()
    with SummaryRecord(tmp_path, num_process=0) as record:
        for step in (7, 8):
            operator("huge", ms.Tensor(np.zeros(10_000, np.float32)))
            operator("small", ms.Tensor(np.full(3, step, np.float32)))
            record.add_value("scalar", "loss", float(step))
            assert not record.record(step)
    run = read(tmp_path)
    assert run.tags() == {"scalar": ["loss"], "tensor": ["small"]}
    assert run.scalars("loss").step.tolist() == run.tensors("small").step.tolist() == [7, 8]
    (message,) = said("huge")
    assert "of step 7 takes" in message
