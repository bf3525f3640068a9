"""The table of spans."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from instrument.analyse.profile import profile
from instrument.analyse.tables import spans_by_name
from instrument.trace.events import SPAN, SPAN_CALLBACK, SPAN_EPOCH, SPAN_STEP, SPAN_USER
from tests.analyse.build import T0, capture
from tests.analyse.files import STEP_NS, cpu_window, directory_of
from tests.trace import encoders

MS = 10**6


def test_spans_by_name() -> None:
    """Those of users and callbacks, by name and kind; steps and epochs are none; open ones have no time."""
    rows = [
        (T0, 3 * MS, 0, SPAN_USER, 1, -1), (T0, MS, 0, SPAN_USER, 2, -1), (T0, -1, 0, SPAN_USER, 2, -1),
        (T0, 9 * MS, 1, SPAN_CALLBACK, 1, -1), (T0, MS, 2, SPAN_STEP, 1, 5), (T0, MS, 2, SPAN_EPOCH, 1, 1),
        (T0, -1, 3, SPAN_USER, 1, -1),
    ]  # fmt: skip
    table = spans_by_name(capture(spans=np.array(rows, SPAN), names=("load", "Saver.hook", "step", "never ended")))
    assert {name: values.tolist() for name, values in table.columns.items()} == {
        "name": ["Saver.hook", "load", "never ended"],
        "kind": ["callback", "span", "span"],
        "threads": [1, 2, 1],
        "count": [1, 2, 0],
        "open": [0, 1, 1],
        "total_ns": [9 * MS, 4 * MS, 0],
        "mean_ns": [9.0 * MS, 2.0 * MS, 0.0],
        "min_ns": [9 * MS, MS, 0],
        "max_ns": [9 * MS, 3 * MS, 0],
    }
    assert (len(spans_by_name(capture())), spans_by_name(capture()).notes[0][:3]) == (0, "n/a")


def test_the_report_has_spans_and_what_is_in_no_step(tmp_path: Path) -> None:
    """The step in whose middle the window closed is named; operators behind the last step are counted."""
    files = cpu_window(1, 2)
    files["instrument.names.0.json"] = json.dumps(["step", "load"]).encode()
    files["instrument.marks.0.bin"] = b"".join(
        (
            encoders.mark(T0, STEP_NS, 0, 1, 1),
            encoders.mark(T0 + STEP_NS, -1, 0, 1, 2),
            encoders.mark(T0, 7_000, 1, 0),
        )
    )
    found = profile(directory_of(tmp_path, files))
    text = str(found)
    assert ["load", "span", "1", "1", "7.000", "7.000", "7.000", "7.000"] in [
        line.split() for line in text.splitlines()
    ]
    assert found.steps["step"].tolist() == [1]
    assert "  Step 2 had not ended when the window closed, and is no row." in text
    assert "  3 of 6 executions ran in no step: between steps" in text
