"""Several ranks of one training in one directory: one run, whose series, graph and lineage know their rank."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import lineage
from instrument.errors import NoSuchRun
from instrument.values import Event, MessageItem
from tests import protobuf
from tests.runs.build import SECONDS, steps, write, write_lineage


def three_ranks(directory: Path) -> None:
    """Ranks 0, 1 and 10 on two hosts; the loss of each is its number."""
    for rank, host in ((10, "b"), (1, "a"), (0, "a")):
        write(directory, steps("scalar", "loss", [1, 2], float(rank), start=10.0 + rank), device=rank, host=host)


def test_the_ranks_of_a_run_are_listed_by_number(tmp_path: Path) -> None:
    """From the names of files, also of profiles; a file that names none adds none."""
    three_ranks(tmp_path)
    (tmp_path / f"events.out.events.profile.{SECONDS}.12.host_MS").write_bytes(b"")
    (tmp_path / f"events.out.tfevents.{SECONDS}.host").write_bytes(b"")
    run = read(tmp_path)
    assert run.ranks == [0, 1, 10, 12]
    assert "writers       4  host, rank 0 on a, rank 1 on a, ...; see .of_rank(), and .by_rank()" in repr(run)
    assert read(tmp_path / f"events.out.tfevents.{SECONDS}.host").ranks == []


def test_a_series_is_parted_by_rank(tmp_path: Path) -> None:
    """Also where a rank went on on another host: both its files are its series."""
    three_ranks(tmp_path)
    write(tmp_path, steps("scalar", "loss", [3], 1.5, start=30.0), seconds=SECONDS + 9, device=1, host="b")
    loss = read(tmp_path).scalars("loss")
    assert {rank: (one.step.tolist(), one.value.tolist()) for rank, one in loss.by_rank().items()} == {
        0: ([1, 2], [0.0, 0.0]),
        1: ([1, 2, 3], [1.0, 1.0, 1.5]),
        10: ([1, 2], [10.0, 10.0]),
    }
    assert loss.by_rank()[1].writer == [(1, "a"), (1, "a"), (1, "b")]
    assert ".by_rank() has each for itself" in repr(loss)


def test_one_rank_is_a_run_of_its_own(tmp_path: Path) -> None:
    """Its series and its damage, and nothing of the others; a rank that is not there is refused with those that are."""
    three_ranks(tmp_path)
    with (tmp_path / f"events.out.events.summary.{SECONDS}.1.a_MS").open("ab") as file:
        file.write(b"torn")
    run = read(tmp_path)
    one = run.of_rank(1)
    assert (one.ranks, one.name, one.scalars("loss").value.tolist()) == ([1], tmp_path.name, [1.0, 1.0])
    assert [len(run.damage), len(one.damage), len(run.of_rank(0).damage)] == [1, 1, 0]
    with pytest.raises(NoSuchRun, match="has no rank 3; it has 0, 1, 10"):
        run.of_rank(3)
    with pytest.raises(NoSuchRun, match="has no rank 0; it has 1"):
        one.of_rank(0)


def test_one_rank_is_followed_alone(tmp_path: Path) -> None:
    """A run that grows, looked at by rank, takes new files of that rank only."""
    three_ranks(tmp_path)
    one = read(tmp_path, follow=True).of_rank(1)
    assert one.scalars("loss").step.tolist() == [1, 2]
    for rank in (0, 1):
        write(tmp_path, steps("scalar", "loss", [3], 5.0, start=50.0), seconds=SECONDS + 1, device=rank, host="a")
    assert one.scalars("loss").step.tolist() == [1, 2, 3]


def test_the_lowest_rank_tells_of_the_run(tmp_path: Path) -> None:
    """Where every rank recorded graph and lineage, those of the lowest count, whichever came last."""
    graph_class = protobuf.message_class("GraphProto")
    for rank, time in ((0, 5.0), (1, 9.0)):
        graph = graph_class(name="net").SerializeToString() + bytes([0xA2, 0x06, 1, rank])  # an unknown field
        write(tmp_path, [Event.of(1, time, (MessageItem("graph", "", graph),))], device=rank)
        custom = lineage.custom_message({"rank": rank, f"only_{rank}": 1})
        write_lineage(tmp_path, [("custom_lineage_data", custom)], SECONDS + rank, device=rank)
    run = read(tmp_path)
    assert run.lineage["custom"] == {"rank": 0, "only_0": 1, "only_1": 1}
    assert run.of_rank(1).lineage["custom"] == {"rank": 1, "only_1": 1}
    assert [one.graph.data[-1] for one in (run, run.of_rank(0), run.of_rank(1)) if one.graph] == [0, 0, 1]


def test_a_data_frame_has_a_column_a_rank(tmp_path: Path) -> None:
    """`pivot` puts the ranks side by side."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    three_ranks(tmp_path)
    frame = read(tmp_path).scalars("loss").to_pandas().pivot(index="step", columns="device", values="value")
    assert list(frame.columns) == [0, 1, 10]
    assert np.array_equal(frame.to_numpy(), [[0.0, 1.0, 10.0]] * 2)
