"""Which executions count: impossible ones are left out or cut, and counted by kind."""

from __future__ import annotations

import random

import numpy as np
import pytest

from instrument.analyse import busy, operators
from instrument.analyse.executions import count_executions
from instrument.analyse.groupby import aggregate
from instrument.trace.events import AI_CPU, COMMUNICATION, CPU, LOST, MISSING, Capture
from tests.analyse.build import T0, capture, column, executions, operator

GOOD = [(T0 + 100 * place, 50, 0, 7) for place in range(100)]


def of(*rows: tuple[int, ...], side: str = "AI Core", **parts: object) -> Capture:
    return capture(
        (operator("Default/a/Mul-op0", side), operator("Default/a/Add-op1", side)), executions(*rows), **parts
    )


def total(given: Capture) -> int:
    return int(count_executions(given).executions["duration_ns"].sum())


def test_bad_executions_are_counted_by_kind() -> None:
    """Lost starts and ends, ends before starts: sums are those of the good ones."""
    bad = [(0, 0, 0, 7)] * 5 + [(T0 + 7, -3, 0, 7)] * 2 + [(T0 + 9, MISSING, 0, 7)]
    found = count_executions(of(*GOOD, *bad))
    assert found.left_out == {"zero_timestamp": 5, "open": 1, "negative": 2}
    assert (len(found.executions), int(found.executions["duration_ns"].sum())) == (100, 5_000)
    assert (found.clipped, found.zero_duration) == (0, 0)
    assert [(one.what, one.amount) for one in found.problems()] == [
        ("executions without a start (a time of zero), left out of sums", 5),
        ("executions without an end, left out of sums", 1),
        ("executions with a negative duration, left out of sums", 2),
    ]


def test_an_execution_counts_from_its_start_to_its_end() -> None:
    """Also where others begin before it ends: kernels of one task run inside each other on one stream."""
    rows = executions((T0, 100, 0, 7), (T0 + 10, 20, 1, 7), (T0 + 110, 20, 0, 7))
    rows["task"] = 4
    given = capture((operator("Default/a/Mul-op0"), operator("Default/a/Add-op1")), rows)
    found = count_executions(given)
    assert found.executions["duration_ns"].tolist() == [100, 20, 20]
    assert (found.clipped, found.overlapping, found.problems()) == (0, 0, [])
    assert operators.by_name(given, found)["max_ns"].tolist() == [100, 20]
    assert column(busy.idle_streams(given, found)["busy_ns"]) == [120]


def test_tasks_that_overlap_on_a_stream_are_told() -> None:
    """They count in full; the sums then exceed the time in which the stream was busy."""
    rows = [(T0 + 12_000 * place, 10_000, place % 2, 7) for place in range(1_000)]
    rows[500] = (rows[500][0], 3_400_000, 0, 7)
    found = count_executions(of(*rows))
    assert (found.clipped, int(found.executions["duration_ns"].max())) == (0, 3_400_000)
    assert [(one.what, one.amount) for one in found.problems()] == [
        ("executions that reach past the start of another task on their stream, counted in full", 1)
    ]


def lost(*ranges: tuple[int, int]) -> object:
    return np.array(list(ranges), LOST)


def test_where_records_were_lost_an_execution_ends_at_the_next_one() -> None:
    """Its end may be that of a later run of its task; one before that place, and one of another stream, stay."""
    rows = ((T0, 50, 0, 7), (T0 + 10, 10, 1, 7), (T0 + 60, 900, 0, 7), (T0 + 60, 900, 0, 8), (T0 + 300, 40, 1, 7))
    found = count_executions(of(*rows, lost=lost((T0 + 100, T0 + 200))))
    assert found.executions["duration_ns"].tolist() == [50, 10, 240, 900, 40]
    assert (found.clipped, found.clipped_ns, found.uncertain) == (1, 660, 2)
    cut, uncertain = found.problems()[:2]
    assert cut.what.startswith("executions that reach over the end of the window or a place where records were lost")
    assert (cut.amount, uncertain.amount) == (1, 2)


def test_cuts_are_those_of_a_plain_search(rng: np.random.Generator) -> None:
    """Random executions and lost records, nested and beside each other, against loops."""
    for _ in range(50):
        count = int(rng.integers(1, 40))
        starts = np.sort(rng.integers(0, 300, count)) + T0
        rows = [(int(start), int(rng.integers(0, 80)), 0, int(rng.integers(0, 3))) for start in starts]
        edges = (np.sort(rng.choice(300, 6, replace=False)) + T0).reshape(-1, 2).tolist()
        found = count_executions(of(*rows, lost=lost(*map(tuple, edges))))
        expected, uncertain, overlapping = [], 0, 0
        for start, duration, _, stream in rows:
            ends = [end for begin, end in edges if start <= begin and end <= start + duration]
            uncertain += bool(ends)
            others = [other for other, _, _, at in rows if at == stream and ends and other >= ends[0]]
            expected.append(min([duration, *(other - start for other in others)]))
        assert found.executions["duration_ns"].tolist() == expected
        assert found.uncertain == uncertain
        for stream in range(3):
            reach, holder, holders = 0, -1, set()
            for place, (start, _, _, at) in enumerate(rows):
                if at != stream:
                    continue
                holders |= {holder} if start < reach else set()
                if start + expected[place] > reach:
                    reach, holder = start + expected[place], place
            overlapping += len(holders)
        assert found.overlapping == overlapping


@pytest.mark.parametrize("side", [CPU, AI_CPU, COMMUNICATION])
def test_sides_that_do_several_things_at_once_are_not_cut(side: str) -> None:
    """One that encloses others is as long as it says."""
    assert total(of((T0, 100, 0, 7), (T0 + 10, 20, 1, 7), side=side)) == 120


@pytest.mark.parametrize("rows", [((T0, 100, 0, 1), (T0 + 10, 20, 1, 2)), ((T0, 100, 0, -1), (T0 + 10, 20, 1, -1))])
def test_streams_do_not_cut_each_other(rows: tuple[tuple[int, ...], ...]) -> None:
    """Nor is anything known where the trace does not tell the stream."""
    assert total(of(*rows)) == 120


def test_the_window_is_a_limit() -> None:
    """What began outside does not count, what reaches over its end is cut."""
    told = {"start_ns": T0, "stop_ns": T0 + 1_000}
    rows = ((T0 - 1, 5, 0, 7), (T0, 5, 0, 7), (T0 + 990, 70, 1, 7), (T0 + 1_000, 1, 1, 7))
    found = count_executions(of(*rows, side=CPU, metadata=told))
    assert found.left_out == {"outside": 2}
    assert found.executions["duration_ns"].tolist() == [5, 10]
    assert (found.clipped, found.clipped_ns) == (1, 60)


def test_durations_of_days_do_not_overflow() -> None:
    """They are impossible, and their sum would not fit."""
    found = count_executions(of(*[(T0 + place, 2**61, 0, 7) for place in range(8)], (T0 + 100, 5, 0, 7)))
    assert found.left_out == {"too_long": 8}
    assert found.executions["duration_ns"].tolist() == [5]


def test_a_duration_of_zero_is_an_execution() -> None:
    """The counter of a device has steps of 10 ns: it is counted, and named."""
    found = count_executions(of((T0, 0, 0, 7), (T0 + 10, 4, 0, 7)))
    assert found.zero_duration == 1
    table = operators.by_name(of((T0, 0, 0, 7), (T0 + 10, 4, 0, 7)), found)
    assert (table["count"][0], table["total_ns"][0], table["mean_ns"][0], table["min_ns"][0]) == (2, 4, 2.0, 0)


def test_nothing_is_nothing() -> None:
    """An empty capture has no problems."""
    found = count_executions(capture())
    assert (len(found.executions), found.left_out, found.problems()) == (0, {}, [])


def test_sums_of_groups_are_exact() -> None:
    """Against plain loops, beyond what a float64 holds; keys without values are 0."""
    seed = random.randrange(2**32)
    print("seed", seed)
    draw = random.Random(seed)
    keys = [draw.randrange(7) for _ in range(500)]
    values = [draw.randrange(10**15) + 2**53 for _ in keys]
    found = aggregate(np.array(keys), np.array(values), 9)
    for key in range(9):
        mine = [value for at, value in zip(keys, values, strict=True) if at == key]
        expected = (len(mine), sum(mine), min(mine, default=0), max(mine, default=0))
        assert tuple(int(getattr(found, name)[key]) for name in ("count", "total", "min", "max")) == expected
