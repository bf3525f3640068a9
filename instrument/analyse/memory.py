"""Memory of the device, or of the host where operators run there: over time, its peaks, and at which step."""

from __future__ import annotations

from typing import Any

import numpy as np

from instrument.analyse.groupby import mask_missing
from instrument.analyse.steps import rows_at
from instrument.analyse.table import Table
from instrument.trace.events import MISSING, Capture, Integers

KINDS = ("allocated_bytes", "reserved_bytes", "active_bytes")


def over_time(capture: Capture) -> Table:
    """Tabulate the samples by time: `time_ns` on the clock of the capture, step, and sizes in bytes."""
    samples = capture.memory[np.argsort(capture.memory["time_ns"], kind="stable")]
    columns = {
        "time_ns": samples["time_ns"],
        "step": mask_missing(_steps(samples["time_ns"], capture)),
        **{name: mask_missing(samples[name]) for name in KINDS},
    }
    notes = [] if len(samples) else ["n/a: the trace has no samples of memory (profile_memory)."]
    return Table("memory", columns, "Memory over time", notes)


def peaks(table: Table) -> Table:
    """Tabulate the peaks, one row a kind of size, of the table that `over_time` made: when and in which step."""
    rows = [row for name in KINDS if (row := _peak(table, name))]
    heads = ("kind", "peak_bytes", "step", "time_ns", "first_bytes", "last_bytes")
    columns = {head: [row[place] for row in rows] for place, head in enumerate(heads)}
    return Table("memory_peaks", columns, "Peaks of memory", table.notes)


def _peak(table: Table, name: str) -> tuple[Any, ...] | None:
    places = np.flatnonzero(~np.ma.getmaskarray(table[name]))
    if not len(places):
        return None
    values = np.ma.getdata(table[name])[places]
    place = int(places[np.argmax(values)])
    step = table["step"][place]
    return (
        name.removesuffix("_bytes"),
        int(values.max()),
        None if np.ma.is_masked(step) else int(step),
        int(table["time_ns"][place]),
        int(values[0]),
        int(values[-1]),
    )


def _steps(times: Integers, capture: Capture) -> Integers:
    """Return the number of the step that each time lies in."""
    rows = capture.steps[np.argsort(capture.steps["start_ns"], kind="stable")]
    place = rows_at(times, rows)
    return np.where(place >= 0, rows["step"][place], MISSING) if len(rows) else place
