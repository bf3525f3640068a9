"""Memory over time, and its peaks."""

from __future__ import annotations

from instrument.analyse.tables import memory_over_time, memory_peaks
from tests.analyse.build import T0, capture, column, marked
from tests.analyse.build import memory as samples


def test_peaks_name_their_step() -> None:
    """Samples come in any order; a size that the source does not tell is n/a and has no peak."""
    given = capture(
        memory=samples((T0 + 15, 300), (T0 + 5, 100), (T0 + 25, 300), (T0 + 99, 50)),
        steps=marked((1, T0, T0 + 10), (2, T0 + 10, T0 + 30)),
    )
    table = memory_over_time(given)
    assert table["time_ns"].tolist() == [T0 + 5, T0 + 15, T0 + 25, T0 + 99]
    assert column(table["step"]) == [1, 2, 2, None]
    assert column(table["allocated_bytes"]) == [100, 300, 300, 50]
    assert column(table["active_bytes"]) == [None] * 4
    assert list(memory_peaks(memory_over_time(given)).rows()) == [
        ("allocated", 300, 2, T0 + 15, 100, 50),
        ("reserved", 3000, 2, T0 + 15, 1000, 500),
    ]


def test_a_peak_outside_of_steps_has_none() -> None:
    """And without any steps as well."""
    given = capture(memory=samples((T0 + 5, 100)))
    assert next(memory_peaks(memory_over_time(given)).rows()) == ("allocated", 100, None, T0 + 5, 100, 100)


def test_without_samples_it_is_not_available() -> None:
    """With the reason."""
    assert len(memory_over_time(capture())) == 0
    notes = memory_peaks(memory_over_time(capture())).notes
    assert notes == ("n/a: the trace has no samples of memory (profile_memory).",)
