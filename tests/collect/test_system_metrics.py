"""Samples beside a recorder: when they come, with which step, and how they end."""

from __future__ import annotations

import gc
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from mindspore import nn
from mindspore.train import Model
from mindspore.train.callback import Callback

from instrument import SummaryCollector, SummaryRecord, read
from instrument.collect import system_metrics
from instrument.collect.system_metrics import Sampler
from tests.collect.build import BOTH, Said
from tests.collect.fake import Loop, dataset
from tests.write.build import wait_until

TAG = "system/process_count"


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "instrument-system"]


def sampled(directory: Path) -> list[int]:
    """The steps of the samples so far, all of them, in the order of time."""
    run = read(directory)
    return run.scalars(TAG).step.tolist() if TAG in run.tags().get("scalar", ()) else []


class Box:
    """Takes samples."""

    def __init__(self) -> None:
        self.samples: list[dict[str, float]] = []

    def take(self, sample: dict[str, float]) -> None:
        self.samples.append(sample)


def test_samples_come_until_it_is_stopped_and_one_at_the_end() -> None:
    """One after another; `stop` brings the last, is over when it returns, and does nothing the second time."""
    box, numbers = Box(), iter(range(10**6))
    beside = Sampler(lambda: {"n": next(numbers)}, box.take, 0.1)
    wait_until(lambda: len(box.samples) >= 2)
    beside.stop()
    assert samplers() == []
    count = len(box.samples)
    assert [sample["n"] for sample in box.samples] == list(range(count))
    beside.stop()
    assert len(box.samples) == count >= 3


def test_a_short_life_has_one_sample() -> None:
    """Stopped long before its interval is over."""
    box = Box()
    Sampler(lambda: {"n": 1.0}, box.take, 3600.0).stop()
    assert box.samples == [{"n": 1.0}]


def test_dear_samples_come_rarely(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What a sample takes of the processor decides when the next may come: never more than 0.5 % over its life."""
    caplog.set_level(logging.INFO, logger="instrument")
    pauses: list[float] = []
    now, used = [100.0], [0.0]

    class Running:
        def acquire(self, timeout: float) -> bool:
            pauses.append(timeout)
            now[0] += timeout
            return len(pauses) == 6

    class Clock:
        monotonic = staticmethod(lambda: now[0])
        thread_time = staticmethod(lambda: used[0])

    costs = iter([0.001, 0.001, 0.2, 0.001, 0.2, 0.001])

    def take() -> dict[str, float]:
        cost = next(costs)
        used[0] += cost
        now[0] += cost
        return {}

    monkeypatch.setattr(system_metrics, "time", Clock)
    box = Box()
    system_metrics._run(take, weakref.WeakMethod(box.take), 5.0, Running())  # type: ignore[arg-type]
    total, when = 0.0, 1.0
    for pause, cost in zip(pauses[1:], (0.001, 0.001, 0.2, 0.001, 0.2), strict=True):
        total, when = total + cost, when + cost
        assert pause == pytest.approx(max(5.0, (total + cost) / 0.004 - when))
        when += pause
    assert [pause > 5 for pause in pauses[1:]] == [False, False, True, False, True]
    assert used[0] / (now[0] - 100.0) <= 0.004
    assert len([one for one in caplog.messages if "the next sample comes in 89.3 s instead of 5" in one]) == 1


def test_an_error_ends_it_with_a_word(said: Said) -> None:
    """Whatever goes wrong in the thread stays there."""

    def take() -> dict[str, float]:
        raise OSError("nothing left")

    box = Box()
    beside = Sampler(take, box.take, 0.1)
    wait_until(lambda: not samplers())
    assert said("system_metrics end here: OSError: nothing left")
    beside.stop()


@BOTH
def test_samples_stand_between_the_records_of_a_loop(tmp_path: Path, processes: int) -> None:
    """From the first record on, with the step that was recorded last; all records are there, and nothing is lost."""
    with SummaryRecord(tmp_path, num_process=processes, system_metrics=0.1) as record:
        step = 0
        while len(set(sampled(tmp_path))) < 2:
            step += 1
            record.add_value("scalar", "loss", step)
            record.add_value("tensor", "large", np.full(20_000, step, np.float32))  # staged until the record
            time.sleep(0.002)
            assert record.record(step)
            if step % 50 == 0:
                record.flush()
            assert step < 5000
    assert samplers() == []
    found = sampled(tmp_path)
    assert found == sorted(found)
    assert found[0] >= 1
    assert found[-1] == step
    run = read(tmp_path)
    assert run.scalars("loss").value.tolist() == list(range(1, step + 1))
    assert all((run.tensors("large")[one] == one).all() for one in range(1, step + 1))
    assert (record.stats.lost, record.stats.dropped, record.stats.pending, run.damage) == (0, 0, 0, [])
    assert record.stats.events == step + len(found)


def test_nothing_is_sampled_before_the_first_step(tmp_path: Path) -> None:
    """A number of ours would replace what a former training recorded from there on."""
    with SummaryRecord(tmp_path, num_process=0, system_metrics=0.1) as record:
        assert record.metrics is not None
        wait_until(lambda: record.metrics._wants_device)
    assert sampled(tmp_path) == []


def test_all_samples_of_a_step_are_read(tmp_path: Path) -> None:
    """A long step has many, which do not replace each other."""
    with SummaryRecord(tmp_path, num_process=0, system_metrics=0.1) as record:
        record.record(7)
        wait_until(lambda: len(sampled(tmp_path)) >= 2)
    points = read(tmp_path).scalars(TAG)
    assert set(points.step.tolist()) == {7}
    assert (np.diff(points.wall_time) > 0).all()
    assert not points.superseded.any()


def test_a_training_is_sampled_at_the_step_in_progress(tmp_path: Path) -> None:
    """Between two collected steps too; no thread is left when it is over."""
    collector = SummaryCollector(tmp_path, collect_freq=1000, num_process=0, system_metrics=0.1)

    def work(step: int, _: Any) -> None:
        if step == 5:
            wait_until(lambda: 5 in sampled(tmp_path))

    Loop(collector, at_step=work).train(range(1, 9))
    assert samplers() == []
    steps = sampled(tmp_path)
    assert steps == sorted(steps)
    assert {5, 8} <= set(steps)


@pytest.mark.parametrize("sink", [False, True], ids=["steps", "sink mode"])
def test_mindspores_own_loop_is_sampled(tmp_path: Path, sink: bool) -> None:
    """`model.train`, also in sink mode in a compiled graph: samples have the steps that hooks name."""
    network = nn.Dense(4, 1)
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 0.01))
    collector = SummaryCollector(tmp_path, system_metrics=0.1)
    seen: list[int] = []

    class Patient(Callback):  # type: ignore[misc]
        def on_train_step_end(self, run_context: Any) -> None:
            step = int(run_context.original_args().cur_step_num)
            if step in (5, 10):
                wait_until(lambda: step in sampled(tmp_path))
                seen.append(step)

    ms.set_context(mode=ms.GRAPH_MODE if sink else ms.PYNATIVE_MODE)
    try:
        model.train(2, dataset(), callbacks=[collector, Patient()], dataset_sink_mode=sink)
    finally:
        ms.set_context(mode=ms.PYNATIVE_MODE)
    assert seen == [5, 10]
    steps = sampled(tmp_path)
    assert steps == sorted(steps)
    assert set(steps) <= set(range(11))
    assert read(tmp_path).scalars("loss/auto").step.tolist() == [1, 10]


def test_an_evaluation_alone_is_not_sampled(tmp_path: Path) -> None:
    """It has no steps."""
    collector = SummaryCollector(tmp_path, num_process=0, system_metrics=True)
    Loop(collector).evaluate({"accuracy": 0.5})
    assert samplers() == []
    assert sampled(tmp_path) == []


def test_a_training_that_fails_ends_it(tmp_path: Path) -> None:
    """As all recording."""

    def fail(_: int, __: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Loop(SummaryCollector(tmp_path, num_process=0, system_metrics=True), at_step=fail).train(range(1, 3))
    assert samplers() == []


def test_a_recorder_that_is_dropped_ends_it(tmp_path: Path) -> None:
    """The thread keeps nobody alive."""
    record = SummaryRecord(tmp_path, num_process=0, system_metrics=3600)
    record.record(1)
    del record
    gc.collect()
    wait_until(lambda: not samplers())


def test_a_child_that_is_forked_samples_nothing(tmp_path: Path) -> None:
    """It ends at once, and the parent's samples go on."""
    with SummaryRecord(tmp_path, num_process=1, system_metrics=0.1) as record:
        record.record(1)
        child = os.fork()
        if child == 0:
            record.close()
            os._exit(len(samplers()))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        before = len(sampled(tmp_path))
        wait_until(lambda: len(sampled(tmp_path)) > before)
    assert record.stats.lost == 0


@pytest.mark.alone
def test_a_signal_handler_may_close(tmp_path: Path) -> None:
    """Also inside of the recorder's own calls; it returns soon and the thread ends."""
    record = SummaryRecord(tmp_path, num_process=1, system_metrics=0.1)
    took: list[float] = []

    def close(*_: Any) -> None:
        started = time.monotonic()
        record.close()
        took.append(time.monotonic() - started)

    before = signal.signal(signal.SIGALRM, close)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        step = 0
        while not took:
            step += 1
            record.add_value("scalar", "loss", step)
            record.record(step)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert took[0] < 5
    wait_until(lambda: not samplers())


def test_a_logging_handler_may_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the thread has to say is said while it holds nothing that the recorder needs."""
    record = SummaryRecord(tmp_path, num_process=0, system_metrics=0.1)
    answers: list[bool] = []

    class Recording(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            other = threading.Thread(target=lambda: answers.append(record.record(2)))
            other.start()
            other.join(10)
            answers.append(not other.is_alive())

    handler = Recording(logging.WARNING)
    write: Callable[..., int] = os.write
    logging.getLogger("instrument").addHandler(handler)
    try:
        record.record(1)
        monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        monkeypatch.setattr(os, "pwritev", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        monkeypatch.setattr(os, "writev", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        wait_until(lambda: len(answers) >= 2)
    finally:
        logging.getLogger("instrument").removeHandler(handler)
        monkeypatch.setattr(os, "write", write)
        monkeypatch.undo()
        record.close()
    assert all(answers)
