"""Numbers that are NaN or infinite: how many, and from which step on."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from instrument import read
from instrument.show.cli import main
from instrument.values import Event
from tests.runs.build import SECONDS, item, write

#: Of 80 steps 77 are none, from step 3 on.
VALUES = [1.0, 0.5, 2.0, *[math.inf, -math.inf, math.nan] * 25, math.nan, math.inf]


def diverged(folder: Path) -> Path:
    events = [
        Event.of(step, 1000.0 + step, (item("scalar", "loss", value), item("scalar", "lr", 0.1)))
        for step, value in enumerate(VALUES)
    ]
    write(folder, events)
    return folder


def test_a_series_and_a_run_count_them(tmp_path: Path) -> None:
    """77 of 80, the first at step 3; the other tag has none."""
    run = read(diverged(tmp_path))
    loss, rate = run.scalars("loss"), run.scalars("lr")
    assert (len(loss), loss.nonfinite, loss.first_nonfinite_step) == (80, 77, 3)
    assert (rate.nonfinite, rate.first_nonfinite_step) == (0, None)
    assert run.nonfinite() == {"loss": (77, 3)}
    assert "  not finite   77  see .nonfinite()" in repr(run)


def test_points_that_a_later_start_replaced_do_not_count(tmp_path: Path) -> None:
    """The same steps once more, all of them finite: nothing is left to tell."""
    diverged(tmp_path)
    again = [Event.of(step, 5000.0 + step, (item("scalar", "loss", 1.0),)) for step in range(80)]
    write(tmp_path, again, seconds=SECONDS + 5000)
    run = read(tmp_path)
    assert run.nonfinite() == {}
    assert run.scalars("loss", superseded=True).nonfinite == 77


def test_listings_tell_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`ls` in its notes, JSON and CSV in fields of their own."""
    diverged(tmp_path / "run")
    assert main(["ls", str(tmp_path)]) == 0
    assert "77 NaN or infinite from step 3" in capsys.readouterr().out
    assert main(["ls", str(tmp_path), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["nonfinite_points"], row["first_nonfinite_step"]) == (77, 3)
    assert main(["ls", str(tmp_path), "--csv"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    cells = dict(zip(head.split(","), line.split(","), strict=True))
    assert (cells["nonfinite_points"], cells["first_nonfinite_step"]) == ("77", "3")
