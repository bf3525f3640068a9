"""`dialect=`: whose files SummaryRecord and SummaryCollector write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import Run, SummaryCollector, SummaryRecord, read
from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.eventfile.blocks import EventFileReader
from tests import protobuf
from tests.collect.build import BOTH
from tests.collect.fake import Loop

#: Statuses of TensorBoard's page of hyper-parameters.
SUCCESS, FAILURE = 1, 2


def tensorboard(directory: Path) -> Run:
    """What TensorBoard's files hold, read alone."""
    return Run(str(directory), sorted(str(path) for path in directory.iterdir() if "tfevents" in path.name))


def ends(directory: Path) -> list[int]:
    """The statuses with which sessions ended, as TensorBoard's files say."""
    found = []
    for path in tensorboard(directory).files:
        for payload in EventFileReader(path):
            data = bytes(payload)
            at = data.find(tb.HPARAMS_END.encode())
            if at >= 0:
                start = data.index(wire.key(4, wire.LENGTH_DELIMITED), at + len(tb.HPARAMS_END))
                found.append(data[start + 3])
    return found


@BOTH
@pytest.mark.parametrize("dialect", ["mindspore", "tensorboard", "both"])
def test_a_recorder_writes_what_it_is_told(tmp_path: Path, dialect: str, processes: int) -> None:
    """The same calls, other files; `log_dir` names one that is there."""
    with SummaryRecord(tmp_path, num_process=processes, dialect=dialect) as record:
        for step in range(3):
            record.add_value("scalar", "loss", 0.1 * step)
            record.add_value("tensor", "t", np.full(3, step))
            assert record.record(step)
    assert Path(record.log_dir).exists()
    assert len(list(tmp_path.iterdir())) == {"mindspore": 1, "tensorboard": 2, "both": 3}[dialect]
    assert ("tfevents" in record.log_dir) == (dialect == "tensorboard")
    for run in [read(tmp_path)] + [tensorboard(tmp_path)] * (dialect != "mindspore"):
        assert run.scalars("loss").value.tolist() == [0.0, 0.1, 0.2]
        assert [array.array.tolist() for array in run.tensors("t").values] == [[0] * 3, [1] * 3, [2] * 3]
    assert record.stats.events == 3


@pytest.mark.parametrize("dialect", ["tensorboard", "both"])
def test_files_of_scalars_have_even_numbers(tmp_path: Path, dialect: str) -> None:
    """Whatever comes first, and with two recorders in one second too: scalars are in `.0` or `.2`, all else is not."""
    records = [SummaryRecord(tmp_path, num_process=0, dialect=dialect) for _ in range(2)]
    for step, record in enumerate(records):
        record.add_value("tensor", "w", np.zeros(3, np.float32))
        record.record(2 * step)
        record.add_value("scalar", "loss", 1.0)
        record.record(2 * step + 1)
        record.close()
    files = list(tmp_path.glob("*tfevents*"))
    for path in files:
        kinds = {kind for kind, names in read(path).tags().items() if names}
        assert kinds == ({"scalar"} if int(path.name[-1]) % 2 == 0 else {"tensor"})
    assert len(files) == 4


@pytest.mark.parametrize("dialect", ["mindinsight", "", None, "TensorBoard"])
def test_another_dialect_is_refused(tmp_path: Path, dialect: Any) -> None:
    """The message says which there are."""
    for make in (SummaryRecord, SummaryCollector):
        with pytest.raises(ValueError, match=r"expected 'mindspore' .*, 'tensorboard', or 'both'"):
            make(tmp_path, dialect=dialect)
    assert list(tmp_path.iterdir()) == []


def test_landscapes_need_our_files(tmp_path: Path) -> None:
    """TensorBoard's have no place for them, which is said when one is added."""
    message = protobuf.message_class("LossLandscape")()
    record = SummaryRecord(tmp_path, num_process=0, dialect="tensorboard")
    with pytest.raises(ValueError, match="no place for a landscape; expected a recorder with dialect='mindspore'"):
        record.add_value("landscape", "surface", message)
    record.close()
    with SummaryRecord(tmp_path, num_process=0, dialect="both") as record:
        record.add_value("landscape", "surface", message)
        assert record.record(1)


def test_the_end_of_a_session(tmp_path: Path) -> None:
    """A run with hyper-parameters says how it ended, once; one without says nothing."""
    with SummaryRecord(tmp_path / "well", num_process=0, dialect="tensorboard") as record:
        record.add_value("custom_lineage_data", "facts", {"lr": 0.5, "note": "toy"})
        record.record(1)
    record.close()
    record = SummaryRecord(tmp_path / "badly", num_process=1, dialect="both")
    record.add_value("custom_lineage_data", "facts", {"lr": 0.5})
    record.record(1)
    record.__exit__(RuntimeError, RuntimeError("no"), None)
    with SummaryRecord(tmp_path / "none", num_process=0, dialect="both") as record:
        record.add_value("scalar", "x", 1.0)
        record.record(1)
    assert ends(tmp_path / "well") == [SUCCESS]
    assert ends(tmp_path / "badly") == [FAILURE]
    assert ends(tmp_path / "none") == []
    assert read(tmp_path / "well").lineage == {"hparams": {"lr": 0.5, "note": "toy"}}


@pytest.mark.parametrize("dialect", ["tensorboard", "both"])
def test_a_training_has_its_hyperparameters_from_the_first_step(tmp_path: Path, dialect: str) -> None:
    """TensorBoard takes the first that it is told: they are there early, the user's own among them."""
    seen: list[dict[str, Any]] = []

    def look(step: int, params: Any) -> None:
        if step == 2:
            seen.append(tensorboard(tmp_path).lineage["hparams"])

    options: dict[str, Any] = {"collect_freq": 1, "num_process": 0, "custom_lineage_data": {"note": "toy"}}
    Loop(SummaryCollector(tmp_path, dialect=dialect, **options), at_step=look).train([1, 2, 3])
    assert seen[0]["optimizer"] == "Momentum"
    assert (seen[0]["learning_rate"], seen[0]["note"]) == (0.5, "toy")
    assert ends(tmp_path) == [SUCCESS]
    run = tensorboard(tmp_path)
    assert {"loss/auto", "learning_rate/auto", "lineage/train/loss"} == set(run.tags()["scalar"])
    assert (run.tags()["image"], run.tags()["histogram"]) == (["input_data/auto"], ["bias/auto", "weight/auto"])
    if dialect == "both":
        assert sorted(read(tmp_path).lineage) == ["custom", "dataset", "ran", "train"]
        assert read(tmp_path).scalars("loss/auto").step.tolist() == [1, 2, 3]


def test_a_training_that_fails_says_so(tmp_path: Path) -> None:
    """The error passes, and the session failed."""

    def fail(step: int, params: Any) -> None:
        if step == 3:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        Loop(SummaryCollector(tmp_path, 1, 0, dialect="tensorboard"), at_step=fail).train([1, 2, 3])
    assert ends(tmp_path) == [FAILURE]
