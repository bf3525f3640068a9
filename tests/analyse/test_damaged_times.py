"""Times that a flipped bit moved far away: what they spoil is bounded, and told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.analyse import busy, steps
from instrument.analyse.executions import count_executions
from instrument.analyse.intervals import far
from instrument.analyse.profile import profile
from instrument.trace import marks
from instrument.trace.events import BATCH, MISSING, SPAN, SPAN_STEP, STEP, Capture
from tests.analyse import build
from tests.analyse.build import T0, capture, column, executions, marked, operator
from tests.trace.encoders import decimal, table

HOUR, DAY = 3600 * 10**9, 86_400 * 10**9


def ran(*moved: tuple[int, int]) -> Capture:
    """Ten executions of 50 us, one each 100 us; those of `moved` (place, by) elsewhere."""
    rows = [[T0 + 100_000 * place, 50_000, 0, 7] for place in range(10)]
    for place, by in moved:
        rows[place][0] += by
    return capture([operator("Mul-op0")], executions(*map(tuple, rows)), target="ascend")


def steps_of(given: Capture) -> Any:
    return steps.per_step(given, count_executions(given))


@pytest.mark.parametrize("by", [3 * HOUR, -3 * HOUR, 925 * DAY, -925 * DAY])
def test_one_start_far_away_does_not_make_a_step_of_days(by: int) -> None:
    """The window is that of the others; the execution itself counts, and is told."""
    given = ran((4, by))
    assert column(steps_of(given)["total_ns"]) == [950_000]
    found = count_executions(given)
    assert int(found.executions["duration_ns"].sum()) == 500_000
    assert [(one.what, one.amount) for one in found.problems()] == [
        ("executions that begin or end far away from all others, left out of the window and of idle times", 1)
    ]
    assert column(busy.idle_streams(given, found)["span_ns"]) == [950_000]


def test_a_pause_is_no_damage() -> None:
    """A window that is interrupted for a while is as long as it is."""
    given = ran(*((place, 20 * 10**9) for place in range(5, 10)))
    assert column(steps_of(given)["total_ns"]) == [20 * 10**9 + 950_000]
    assert count_executions(given).problems() == []


def test_a_digit_of_a_table(tmp_path: Path) -> None:
    """The same out of a file: one digit of one start is another one."""
    heading = ["Name", "Type", "Accelerator Core", "Stream ID", "Start Time(us)", "Duration(us)"]
    starts = [decimal(T0 + 100_000 * place, 1000) for place in range(10)]
    starts[3] = starts[3][:2] + str((int(starts[3][2]) + 1) % 10) + starts[3][3:]
    rows = [["Mul", "Mul", "AI_CORE", 1, start, 50] for start in starts]
    (tmp_path / "kernel_details.csv").write_bytes(table(heading, rows))
    found = profile(tmp_path)
    assert column(found.steps["total_ns"]) == [950_000]
    assert len(found.problems) == 1


def test_far_is_what_a_plain_rule_says(rng: np.random.Generator) -> None:
    """More than twenty times the extent of the middle four fifths, and a minute, away from them."""
    for _ in range(200):
        start = rng.integers(0, 10**11, int(rng.integers(0, 30)))
        start[rng.random(len(start)) < 0.1] += int(rng.integers(10**12))
        end = start + rng.integers(0, 10**9, len(start))
        ordered = sorted(start.tolist())
        expected = [False] * len(start)
        if len(start) >= 5:
            last = len(start) - 1
            low, high = ordered[-(-last // 10)], ordered[9 * last // 10]
            bound = max(20 * (high - low), 60 * 10**9)
            expected = [s < low - bound or e > high + bound for s, e in zip(start.tolist(), end.tolist(), strict=True)]
        assert far(start, end).tolist() == expected


def trace(*rows: tuple[int, int, int]) -> Capture:
    """(step, start, end) each, as a device marks them."""
    found = np.array([(step, start, start, MISSING, end, 0) for step, start, end in rows], STEP)
    return capture([operator("a")], executions(), steps=found, target="ascend", clock="device")


def test_an_end_far_away_makes_two_steps_unknown() -> None:
    """The step that it ends, and the one that begins with it; the others stay."""
    moment = 300 + 925 * DAY
    found = steps_of(trace((1, 100, 200), (2, 200, moment), (3, moment, 400), (4, 400, 500), (5, 500, 600)))
    times = dict(zip(column(found["step"]), column(found["total_ns"]), strict=True))
    assert times == {1: 100, 2: None, 3: None, 4: 100, 5: 100}
    assert "1 of 5 steps share a moment that cannot be right with their neighbour; their times are n/a." in found.notes


def test_an_end_too_early_makes_two_steps_unknown() -> None:
    """Which of the two neighbours is in doubt shows in their other ends."""
    found = steps_of(trace((1, 100, 200), (2, 200, 50), (3, 50, 400), (4, 400, 500)))
    times = dict(zip(column(found["step"]), column(found["total_ns"]), strict=True))
    assert times == {1: 100, 2: None, 3: None, 4: 100}


def test_a_last_step_of_days_is_none() -> None:
    """No neighbour contradicts it."""
    found = steps_of(trace((1, 100, 200), (2, 200, 300), (3, 300, 925 * DAY)))
    assert column(found["total_ns"]) == [100, 100, None]
    assert "1 of 3 steps last more than a day, which looks like a damaged time; their times are n/a." in found.notes


def test_a_step_of_hours_among_short_ones_is_named() -> None:
    """It may be true: the time stays."""
    found = steps_of(capture(steps=marked(*((n, T0 + 10**6 * n, T0 + 10**6 * (n + 1)) for n in range(1, 6)),
                                          (6, T0 + 6 * 10**6, T0 + 3 * HOUR))))  # fmt: skip
    assert column(found["total_ns"])[-1] == 3 * HOUR - 6 * 10**6
    assert any(note.startswith("Step 6 lasts 10799.994 s, 10799994 times the median") for note in found.notes)


def test_marks_outside_of_the_window_are_none() -> None:
    """A mark ends in its window, or is open at its end; before it it may well have begun."""
    window = {"start_ns": T0, "stop_ns": T0 + 10**9}
    rows = [(T0 - DAY, DAY + 5), (T0 + 5, 10), (T0 + 5, MISSING), (T0 + 5, DAY), (T0 + DAY, 5), (T0 - DAY, 5)]
    spans = np.array([(start, duration, 0, SPAN_STEP, 1, 1) for start, duration in rows], SPAN)
    assert marks.within(spans, window).tolist() == [True, True, True, False, False, False]
    assert marks.within(spans, {}).all()


def test_a_batch_far_away_does_not_hide_a_wait() -> None:
    """The share of waiting is that of the others."""
    rows = np.full(20, MISSING, np.int64).astype(BATCH)
    rows["time_ns"] = T0 + np.arange(20) * 10**7
    rows["pipeline_ns"] = rows["total_ns"] = 10**7
    rows["queue_size"], rows["queue_capacity"] = 0, 16
    whole = build.data_verdict(capture(batches=rows.copy())).wait_percent
    rows["time_ns"][7] += 925 * DAY
    damaged = build.data_verdict(capture(batches=rows)).wait_percent
    assert (whole, damaged) == (pytest.approx(100), pytest.approx(95))
