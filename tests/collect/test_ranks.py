"""One process of several: which rank it is, what it records, and where."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import Run, SummaryCollector, SummaryRecord, framework, read
from tests.collect.fake import Loop

Said = Callable[..., list[str]]
LANDSCAPE = {"collect_landscape": {"unit": "step", "intervals": [[1, 2, 3]]}}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set what a launcher leaves in the environment, and nothing else of the kind."""

    def launch(**variables: str) -> None:
        for name in ("RANK_ID", "RANK_SIZE", "MS_WORKER_NUM", "RANK_TABLE_FILE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return launch


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ({}, None),
        ({"RANK_ID": "1", "RANK_SIZE": "2"}, 1),
        ({"RANK_ID": "3", "MS_WORKER_NUM": "4"}, 3),
        ({"RANK_ID": "5", "RANK_TABLE_FILE": "table.json"}, 5),
        ({"RANK_ID": "0", "RANK_SIZE": "2"}, 0),
        ({"RANK_ID": "2", "RANK_SIZE": "1"}, None),
        ({"RANK_ID": "2"}, None),
        ({"RANK_ID": "first", "RANK_SIZE": "2"}, None),
    ],
)
def test_the_rank_is_what_the_launcher_says(
    launched: Callable[..., None], variables: dict[str, str], rank: int | None
) -> None:
    """Before communication is set up; a process that has no others beside it has none, and its device's number."""
    launched(**variables)
    assert framework.rank() == rank
    assert framework.device_number() == (rank or 0)


def train(directory: Path, **options: object) -> SummaryCollector:
    collector = SummaryCollector(directory, 1, num_process=0, custom_lineage_data={"note": 1}, **options)  # type: ignore[arg-type]
    loop = Loop(collector)
    with loop.entered():
        loop.call("on_train_begin")
        for step in (1, 2, 3):
            loop.step(step)
        loop.evaluate({"accuracy": 0.5})
        loop.call("on_train_end")
    return collector


def test_the_first_rank_tells_of_the_run(tmp_path: Path, launched: Callable[..., None], said: Said) -> None:
    """Numbers, pictures and histograms are of every rank; lineage, graphs and a landscape's weights of the first."""
    for rank in ("1", "0"):
        launched(RANK_ID=rank, RANK_SIZE="2")
        train(tmp_path, collect_specified_data=LANDSCAPE)
    run = read(tmp_path)
    assert run.ranks == [0, 1]
    assert run.of_rank(0).tags() == run.of_rank(1).tags()
    assert "eval/accuracy/auto" in run.of_rank(1).tags()["scalar"]
    assert sorted(run.of_rank(0).lineage) == ["custom", "dataset", "eval", "ran", "train"]
    assert run.of_rank(1).lineage == {}
    assert len(list(tmp_path.glob("*_lineage"))) == 1
    assert len(list((tmp_path / "ckpt_dir").glob("*.ckpt"))) == 3
    assert len(said("on_every_rank=True", level=20)) == 1


def test_every_rank_tells_of_the_run_when_asked(tmp_path: Path, launched: Callable[..., None]) -> None:
    """`on_every_rank` is for networks that differ; a landscape's weights are those of the first even so."""
    launched(RANK_ID="1", RANK_SIZE="2")
    train(tmp_path, on_every_rank=True, collect_specified_data=LANDSCAPE)
    assert sorted(read(tmp_path).lineage) == ["custom", "dataset", "eval", "ran", "train"]
    assert not (tmp_path / "ckpt_dir").exists()
    with pytest.raises(TypeError, match="on_every_rank is 1 of type int; expected True or False"):
        SummaryCollector(tmp_path, on_every_rank=1)  # type: ignore[arg-type]


def test_ranks_that_begin_in_one_second_share_no_file(
    tmp_path: Path, launched: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither event files, nor tensors that are exported under the same tag and step."""
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)
    for rank in (0, 1):
        launched(RANK_ID=str(rank), RANK_SIZE="2")
        with SummaryRecord(tmp_path, num_process=0, export_options={"tensor_format": "npy"}) as record:
            record.add_value("tensor", "t", np.full(2, rank, np.float32))
            assert record.record(7)
    assert {path.name: np.load(path / "tensor" / "t_7.npy").tolist() for path in tmp_path.glob("export_*")} == {
        "export_1700000000": [0.0, 0.0],
        "export_1700000000_rank1": [1.0, 1.0],
    }
    assert [points.values[0].array.tolist() for points in read(tmp_path).tensors("t").by_rank().values()] == [
        [0.0, 0.0],
        [1.0, 1.0],
    ]


@pytest.mark.parametrize("dialect", ["tensorboard", "both"])
def test_ranks_in_tensorboards_dialect_are_told_apart(
    tmp_path: Path, launched: Callable[..., None], said: Said, dialect: str
) -> None:
    """By the ends of their names; a second start of one replaces nothing of the other."""
    for start, rank in enumerate((0, 1, 1)):
        launched(RANK_ID=str(rank), RANK_SIZE="2")
        with SummaryRecord(tmp_path, num_process=0, dialect=dialect) as record:
            for step in (1, 2):
                record.add_value("scalar", "loss", float(10 * start + step))
                assert record.record(step)
    run = Run(str(tmp_path), sorted(map(str, tmp_path.glob("*tfevents*"))))
    assert run.ranks == [0, 1]
    for found in (run, read(tmp_path)):
        assert {rank: points.value.tolist() for rank, points in found.scalars("loss").by_rank().items()} == {
            0: [1.0, 2.0],
            1: [21.0, 22.0],
        }
    assert {path.name.rpartition(".")[2] for path in tmp_path.glob("*tfevents*")} == {"rank0", "rank1"}
    assert len(said("holds a run already")) == 1


def test_the_name_of_a_single_process_has_no_rank(tmp_path: Path, launched: Callable[..., None]) -> None:
    """TensorBoard's own form, whatever the number of its device."""
    launched()
    with SummaryRecord(tmp_path, num_process=0, dialect="tensorboard") as record:
        assert record.log_dir.endswith(".0")


@pytest.mark.parametrize("options", [{}, {"dialect": "tensorboard"}, {"file_prefix": "other"}, {"file_suffix": "_x"}])
def test_recorders_that_begin_in_one_second_export_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    """Each has a directory for its tensors, whatever its event files are called."""
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)
    for number in range(3):
        of_this = options if number else {}
        with SummaryRecord(tmp_path, num_process=0, export_options={"tensor_format": "npy"}, **of_this) as record:
            record.add_value("tensor", "t", np.full(2, number, np.float32))
            assert record.record(7)
    exported = {path.name: np.load(path / "tensor" / "t_7.npy").tolist() for path in tmp_path.glob("export_*")}
    assert exported == {f"export_{1_700_000_000 + number}": [number] * 2 for number in range(3)}
