"""What verbs say on stderr of what they left out, where no other test compares their words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.runs.run import read_run
from instrument.show.cli import main
from instrument.values import Event, MessageItem
from tests import protobuf
from tests.analyse.build import T0
from tests.analyse.files import NAMES, cpu_window, directory_of
from tests.runs.build import write
from tests.runs.test_tensorboard import FILE, event, value
from tests.trace.encoders import timestamps


def errors(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> list[str]:
    assert main([str(word) for word in words]) == code
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("npy", "they are no arrays; csv, json and parquet hold them"),
        ("tensorboard", "TensorBoard has no place for them"),
    ],
)
def test_a_landscape_has_no_place(tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str, reason: str) -> None:
    """In some formats; everything else is exported."""
    surface = MessageItem("landscape", "plane", protobuf.message_class("LossLandscape")().SerializeToString())
    write(tmp_path / "run", [Event(1, 5.0, [surface], {"x": 1.0})])
    said = errors(capsys, "export", tmp_path / "run", "--to", to, "-o", tmp_path / "out")
    assert said == [f"instrument: not exported: 1 landscape tag: {reason}"]


def test_what_is_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And where there is none at all, nothing is exported."""
    write(tmp_path, [Event(1, 5.0, [], {"x": 1.0})])
    (said,) = errors(capsys, "export", tmp_path, "--to", "png", "-o", tmp_path / "out", code=1)
    assert said.endswith("can be exported to png: 1 scalar tag: they are no pictures")


def test_hyperparameters_without_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are counted; those with one are there."""
    entries = [wire.delimited(1, b"seed"), wire.delimited(1, b"lr") + wire.delimited(2, wire.double(2, 0.5))]
    info = b"".join(wire.delimited(1, one) for one in entries)
    content = wire.delimited(1, wire.delimited(1, b"hparams") + wire.delimited(2, wire.delimited(3, info)))
    start = value(tb.HPARAMS_START, wire.delimited(tb.METADATA, content))
    (tmp_path / FILE).write_bytes(event(1, start))
    said = errors(capsys, "import", tmp_path / FILE, "-o", tmp_path / "out")
    assert said == [f"instrument: not imported: {FILE}: 1 hyper-parameters without a value"]
    assert read_run(tmp_path / "out").lineage == {"custom": {"lr": 0.5}}


def test_histograms_that_mindinsight_does_not_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are imported with all their buckets."""
    limits, counts = np.arange(1.0, 101.0), np.ones(100)
    histogram = b"".join(wire.double(number, x) for number, x in enumerate((0.0, 100.0, 100.0, 5000.0, 3e5), 1))
    histogram += wire.delimited(6, limits.tobytes()) + wire.delimited(7, counts.tobytes())
    (tmp_path / FILE).write_bytes(event(1, value("h", wire.delimited(tb.HISTO, histogram))))
    said = errors(capsys, "import", tmp_path / FILE, "-o", tmp_path / "out")
    words = "1 histograms have over 90 buckets: MindInsight shows none of them"
    assert said == [f"instrument: not imported: {FILE}: {words}"]
    assert read_run(tmp_path / "out").histograms("h")[1].counts.size == 100


def test_two_paths_of_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Would go into one folder; nothing is imported."""
    (said,) = errors(capsys, "import", tmp_path / "a" / "run", tmp_path / "b" / "run", "-o", tmp_path / "out", code=1)
    assert said == ("instrument: several of the paths end in 'run'; take them one by one, each with its own -o")
    assert not (tmp_path / "out").exists()


def test_superseded_points_are_those_of_a_tag(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one that is a wrong call."""
    said = errors(capsys, "show", tmp_path, "--superseded", code=2)
    assert said[-1] == "instrument show: error: --superseded is for the points of tags; give --tag too"


def test_what_is_not_in_a_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Executions whose times cannot be right are counted; the file is written."""
    files = cpu_window(1)
    times: Any = {NAMES[0]: [(T0 + 10_000, 0.02, 0), (T0 + 90_000, -0.02, 0)]}
    files["FRAMEWORK/cpu_op_execute_timestamp_0.txt"] = timestamps(times)
    job = directory_of(tmp_path / "job", files)
    said = errors(capsys, "profile", job, "--steps", "--timeline", tmp_path / "t.json")
    assert "instrument: not in the timeline: events with a negative duration: 1" in said
    assert (tmp_path / "t.json").exists()
