"""What to say where there is no such run or tag: what there is instead."""

from __future__ import annotations

import os
from collections.abc import Iterable

from instrument.runs import folders
from instrument.runs.points import quoted
from instrument.suggestions import closest

_NAMED_AT_MOST = 5
_RANGES = 8
#: The search that only serves an error message ends here.
_SEARCHED_FOLDERS = 2000


def no_event_file(directory: str) -> str:
    """Why `read` cannot open a directory, and what to do."""
    found = folders.find(directory, _SEARCHED_FOLDERS)
    if found.folders:
        below = [os.path.relpath(folder, directory) for folder in found.folders]
        return f"{directory} holds no event file itself; runs below it: {listed(below)}; open one of them"
    notes = f" ({'; '.join(found.notes)})" if found.notes else ""
    return (
        f"no event file at or below {directory}, folders searched: {found.scanned}{notes}; "
        "give the summary_dir or log_dir of a run"
    )


def absent(path: str) -> str:
    """Return why there is nothing at a path."""
    return "is a broken link" if os.path.islink(path) else "does not exist"


def nearest(tag: str, tags: list[str]) -> str:
    """Return in words which of the tags come near to one that is not there."""
    near = closest(tag, tags, _NAMED_AT_MOST)
    if not near:
        return f"it has {listed(tags) or 'none at all'}"
    return f"the nearest {'are' if len(near) > 1 else 'is'} {listed(near)}"


def listed(tags: list[str]) -> str:
    """The first few, and how many more there are."""
    shown = ", ".join(map(quoted, tags[:_NAMED_AT_MOST]))
    return shown if len(tags) <= _NAMED_AT_MOST else f"{shown} and {len(tags) - _NAMED_AT_MOST} more"


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order on one short line: `0 to 63`, `0, 2 to 5, 9`."""
    ends: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    words = [
        f"{first} to {last}" if last > first + 1 else ", ".join(map(str, sorted({first, last}))) for first, last in ends
    ]
    if len(words) > _RANGES:
        return f"{', '.join(words[:_RANGES])} and others up to {ends[-1][1]}"
    return ", ".join(words)
