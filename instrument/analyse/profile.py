"""`profile(path)` opens one window of a profile. `Profile` has its tables and the verbs that users call.

Problem. A profile may be a trace event file, a run, a folder of a device's raw files, or one of these files. It may
have several windows, and a window several devices, each with raw files in a dozen formats, some of them damaged. A user
wants one call, then a report, tables, a comparison, a timeline or files.

Strategy. Three steps, each of them lazy:

1. `windows.find` lists what is at the path: which windows there are, and which raw files belong to each. It parses
   only the files that identify windows.
2. `trace.load` parses the raw files of the chosen window to one `Capture` for each device.
3. `Profile` computes tables out of the captures when they are asked for (`tables.ProfileTables`), and hands itself to
   the functions that draw conclusions: advice, stragglers, comparison, report, save, chrome_trace.

This module is the top of `analyse`: it imports all of the others, and none of them imports it, not even for types. A
function that needs the tables of a profile takes `ProfileTables`.

Rejected: a class for each source of a profile (event file, folder of Ascend, folder of MindSpore's CPU profiler). They
would differ only in how raw files are found, and a window of several ranks often comes from several sources at once.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property

from instrument import paths
from instrument.analyse import (
    advice,
    chrome_trace,
    comparison,
    executions,
    operators,
    report,
    save,
    stragglers,
    windows,
)
from instrument.analyse.comparison import Comparison
from instrument.analyse.operators import KeyAverages
from instrument.analyse.table import Table
from instrument.analyse.tables import ProfileTables, choose_device
from instrument.errors import InstrumentError, NoSuchRun
from instrument.trace.completeness import is_absence
from instrument.trace.events import Capture


def profile(path: str | os.PathLike[str], window: int = -1, device: int | None = None) -> Profile:
    """Open one window of the profile at `path`: a trace event file, a run, a directory of raw files, or one of them.

    Args:
        window: which one of several, by its number. Negative ones count from the end.
        device: which one of several devices the tables are of, by default the first.

    Raises:
        NoSuchRun: nothing of a profile is there.
        InstrumentError: there is no such window or device, or nothing of it can be read.
    """
    place = os.fsdecode(path)
    if paths.is_url(place):
        raise NoSuchRun(
            f"{place} is a URL; profiles are read from directories of this machine: {paths.url_hint(place)}"
        )
    parts = windows.find(place)
    number = windows.choose(parts, window, place)
    captures = [capture for part in parts if part.number == number for capture in part.captures()]
    if not any(map(_has_any, captures)):
        problems = [problem for capture in captures for problem in capture.problems]
        reasons = "; ".join(f"{problem.file}: {problem.what} ({problem.amount})" for problem in problems)
        raise InstrumentError(f"Window {number} of {place} holds nothing that can be read: {reasons or 'it is empty'}.")
    by_device = sorted(captures, key=lambda capture: capture.device)
    return Profile(place, by_device, device, windows.table(parts, number), number)


def nothing(path: str, target: str, reason: str) -> Profile:
    """Return a profile without anything in it. Its metadata has the `reason`."""
    capture = Capture(0, target, "", metadata={"complete": False, "reason": reason})
    return Profile(path, [capture], None, windows.table([], 0))


def _has_any(capture: Capture) -> bool:
    """Return True if a capture holds anything at all, or if all that it lacks are files that are empty or absent."""
    parts = (capture.executions, capture.totals, capture.steps, capture.spans, capture.memory, capture.batches)
    others = (capture.activities, capture.fetches, capture.overlap, capture.reduces, capture.pipeline)
    return (
        any(map(len, parts))
        or any(map(len, others))
        or bool(capture.metadata)
        or all(map(is_absence, capture.problems))
    )


class Profile(ProfileTables):
    """One window of one device in tables. Of several devices, `devices` compares them.

    `print(profile)` is the report. Tables have NumPy columns with units in their names, and `to_pandas()`. What the
    trace does not tell is masked or an empty table, with the reason in the notes of the table.

    `captures` are what the tables are made of, one a device. `capture` is that of the chosen one.
    """

    # ------------------------------------------------------------------ conclusions

    @cached_property
    def advice(self) -> list[str]:
        """Sentences on what takes the time, each with its figures."""
        return advice.sentences(self)

    @cached_property
    def spread(self) -> Table:
        """Distances between the ranks in each step. See `instrument.analyse.stragglers.spread`."""
        return stragglers.spread(self.each())

    @cached_property
    def devices(self) -> Table:
        """One row a device, or rank, of the window. The notes name the slowest. See `instrument.analyse.stragglers`."""
        return stragglers.devices(self.each(), self.spread)

    def compare(self, base: Profile) -> Comparison:
        """Compare with the profile `base`: steps and operators with their differences."""
        return comparison.compare(base, self)

    # ------------------------------------------------------------------ as MindSpore and torch ask

    def key_averages(self) -> KeyAverages:
        """Return operators by full name. `table(sort_by, row_limit)` is a text."""
        return KeyAverages(self.operators)

    def op_analyse(self, op_name: str | Sequence[str], device_id: int | None = None) -> str:
        """Return JSON about operators by type, side and input shapes. See `instrument.analyse.operators.op_analyse`."""
        capture = self.capture if device_id is None else choose_device(self.captures, device_id, self.path)
        counted = self.counted if capture is self.capture else executions.count_executions(capture)
        return operators.op_analyse(capture, counted, op_name)

    # ------------------------------------------------------------------ files

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the timeline of all devices for Perfetto or chrome://tracing, compressed if `path` ends in `.gz`."""
        chrome_trace.write(self.captures, path)

    def save(self, directory: str | os.PathLike[str], pretty: bool = False) -> list[str]:
        """Write all tables as CSV and JSON below `directory`. See `instrument.analyse.save`. Returns the paths."""
        return save.save(self, os.fspath(directory), pretty)

    # ------------------------------------------------------------------ for people

    def __str__(self) -> str:
        return report.text(self)

    def __repr__(self) -> str:
        return f"Profile({self.path!r}, window={self.number}, device={self.device})"

    def _repr_html_(self) -> str:
        return report.html(self)
