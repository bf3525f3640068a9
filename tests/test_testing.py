"""`instrument.testing`: what a training records is there to be asserted, and nothing is on the disk."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec.graph import nodes
from instrument.errors import NoSuchRun
from instrument.testing import CapturedRecords, capture_records
from instrument.values import Graph

ms = pytest.importorskip("mindspore", reason="MindSpore is not installed")

from mindspore import nn  # noqa: E402
from mindspore.train import Model  # noqa: E402

from instrument import SummaryCollector, SummaryRecord, ops, read  # noqa: E402
from tests.collect.fake import dataset  # noqa: E402


class Net(nn.Cell):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Dense(4, 1, weight_init="ones")
        self.histogram = ops.HistogramSummary()

    def construct(self, x: Any) -> Any:
        y = self.dense(x)
        self.histogram("outputs", y)
        return y


def train(directory: Path, **options: Any) -> None:
    """Train ten rows in batches of two, twice: ten steps, of which the first, fifth and tenth are collected."""
    network = Net()
    model = Model(network, nn.MSELoss(), nn.SGD(network.trainable_params(), 1e-4))
    collector = SummaryCollector(directory, collect_freq=5, **options)
    model.train(2, dataset(), callbacks=[collector], dataset_sink_mode=False)


def children() -> list[int]:
    import psutil

    return [child.pid for child in psutil.Process().children(recursive=True)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_training_is_captured_as_it_would_be_written(run: Path, mode: str) -> None:
    """The same tags, steps and numbers as in files; no file, no directory, no process."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    before = children()
    ms.set_seed(1)
    with capture_records() as records:
        train(run, custom_lineage_data={"rate": 0.5}, num_process=2)
        assert children() == before
    assert not run.exists()

    ms.set_seed(1)
    train(run, custom_lineage_data={"rate": 0.5}, num_process=0)
    written = read(run)
    tags = records.tags()
    assert {kind: sorted(tags[kind]) for kind in ("scalar", "histogram", "image") if kind in tags} == {
        kind: sorted(names) for kind, names in written.tags().items() if kind != "graph"
    }
    assert records.scalars("loss/auto").step == [1, 5, 10] == records.steps()[-3:]
    np.testing.assert_allclose(records.scalars("loss/auto").value, written.scalars("loss/auto").value, rtol=1e-5)
    outputs = records.histograms("outputs")
    assert outputs.step == written.histograms("outputs").step.tolist()
    assert [value.size for value in outputs.value] == [one.count for one in written.histograms("outputs").values]
    what_ran, custom = records.points("custom_lineage_data", records.tags()["custom_lineage_data"][0]).value
    assert custom == written.lineage["custom"] == {"rate": 0.5}
    assert what_ran == {"ran": written.lineage["ran"]}
    if mode == "graph":
        ((graph,),) = (records.points("graph", tag).value for tag in tags["graph"])
        assert isinstance(graph, Graph)
        assert written.graph is not None
        assert [node.op_type for node in nodes(graph)] == [node.op_type for node in nodes(written.graph)]


def test_values_are_plain_and_are_copies(run: Path) -> None:
    """Floats, arrays of the type that was recorded, texts; what becomes of an array later changes nothing."""
    array = np.arange(20_000, dtype=np.float64)
    picture = np.zeros((3, 4, 5), np.uint8)
    with capture_records() as records, SummaryRecord(run, export_options={"tensor_format": "npy"}) as record:
        record.add_value("scalar", "loss", ms.Tensor(0.5))
        record.add_value("tensor", "w", array)
        record.add_value("image", "input", picture)
        record.add_value("text", "note", "hello")
        record.add_value("text", "notes", ["a", "b"])
        assert record.record(3)
        array[:] = 0.0
        assert (record.log_dir, record.stats.events, record.stats.pending) == ("(in memory)", 1, 0)
    assert records.scalars("loss") == ([3], [0.5])
    assert type(records.scalars("loss").value[0]) is float
    (kept,) = records.tensors("w").value
    assert kept.dtype == np.float64
    assert kept.tolist() == list(range(20_000))
    kept[:] = 1.0
    assert records.tensors("w").value[0][-1] == 19_999
    assert records.images("input").value[0].shape == (1, 3, 4, 5)
    assert records.texts("note").value == ["hello"]
    assert records.texts("notes").value[0].tolist() == ["a", "b"]
    assert records.tags() == {"scalar": ["loss"], "tensor": ["w"], "image": ["input"], "text": ["note", "notes"]}
    assert [(record.step, record.kind) for record in records] == [
        (3, kind) for kind in ("scalar", "tensor", "image", "text", "text")
    ]
    assert len(records) == 5
    assert not run.exists()


def test_what_was_not_recorded_is_an_error_that_names_the_nearest(run: Path) -> None:
    """Of the same kind."""
    with capture_records() as records, SummaryRecord(run) as record:
        record.add_value("scalar", "loss", 1.0)
        record.record(1)
    with pytest.raises(NoSuchRun, match="no scalar 'los' was recorded in this block; of this kind there is loss"):
        records.scalars("los")
    with pytest.raises(NoSuchRun, match=r"no tensor 'loss' was recorded .* there is nothing"):
        records.tensors("loss")


def test_errors_leave_the_block(run: Path) -> None:
    """Those of the test, and those of a recorder; what was recorded before is there, and files are written again."""

    def fail() -> None:
        with SummaryRecord(run) as record:
            record.add_value("scalar", "loss", 1.0)
            record.record(1)
            record.add_value("scalars", "loss", 1.0)

    with capture_records() as records, pytest.raises(ValueError, match="scalars"):
        fail()
    assert records.scalars("loss") == ([1], [1.0])
    with SummaryRecord(run, num_process=0) as record:
        record.add_value("scalar", "loss", 2.0)
        record.record(2)
    assert read(run).scalars("loss").value.tolist() == [2.0]
    assert len(records) == 1


def test_the_innermost_block_takes_a_recorder(run: Path) -> None:
    """A recorder stays with the block in which it was made, or with its files."""
    with SummaryRecord(run, num_process=0) as on_disk, capture_records() as outer:
        first = SummaryRecord(run)
        with capture_records() as inner:
            second = SummaryRecord(run)
            for number, record in enumerate((on_disk, first, second)):
                record.add_value("scalar", "from", number)
                assert record.record(1)
        second.add_value("scalar", "from", 3)
        assert second.record(2)
        for record in (first, second):
            record.close()
            assert record.record(3) is False
    assert outer.scalars("from").value == [1.0]
    assert inner.scalars("from").value == [2.0, 3.0]
    assert read(run).scalars("from").value.tolist() == [0.0]


def test_threads_record_into_one_block(run: Path) -> None:
    """Every value of each is there, in the order of its thread."""
    with capture_records() as records, SummaryRecord(run) as shared:

        def work(name: str, record: SummaryRecord) -> None:
            for step in range(200):
                record.add_value("scalar", name, step)
                record.record(step)

        own = SummaryRecord(run)
        threads = [threading.Thread(target=work, args=(f"t{number}", (shared, own)[number % 2])) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        own.close()
    for number in range(6):
        assert records.scalars(f"t{number}").value == [float(step) for step in range(200)]


def test_metrics_of_the_system_and_weights_write_nothing(run: Path) -> None:
    """Samples are captured; weights for a landscape are not kept."""
    kept = {"collect_landscape": {"intervals": [[2, 4, 6]], "unit": "step"}}
    with capture_records() as records:
        train(run, system_metrics=0.1, collect_specified_data=kept)
    assert "system/process_memory_bytes" in records.tags()["scalar"]
    assert not run.exists()


def test_a_forked_child_keeps_its_own(run: Path) -> None:
    """A recorder of the parent is refused in the child, as ever."""
    with capture_records() as records:
        record = SummaryRecord(run)
        child = os.fork()
        if not child:
            record.add_value("scalar", "loss", 1.0)
            os._exit(int(record.record(1)))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        record.add_value("scalar", "loss", 2.0)
        assert record.record(1)
        record.close()
    assert records.scalars("loss").value == [2.0]
    assert multiprocessing.active_children() == []


def test_nothing_captured_says_so() -> None:
    """And what there is is shown by its tags."""
    assert repr(CapturedRecords()) == "CapturedRecords(nothing was recorded)"
