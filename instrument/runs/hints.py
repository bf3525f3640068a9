"""What to say where there is no such run or tag: what there is instead."""

from __future__ import annotations

import os

from instrument.runs import folders
from instrument.suggestions import closest
from instrument.wording import quoted_list

_NAMED_AT_MOST = 5
#: The search that only serves an error message ends here.
_SEARCHED_FOLDERS = 2000


def no_event_file(directory: str) -> str:
    """Why `read` cannot open a directory, and what to do."""
    found = folders.find(directory, _SEARCHED_FOLDERS)
    if found.folders:
        below = [os.path.relpath(folder, directory) for folder in found.folders]
        return f"{directory} holds no event file itself; runs below it: {quoted_list(below)}; open one of them"
    notes = f" ({'; '.join(found.notes)})" if found.notes else ""
    return (
        f"no event file at or below {directory}, folders searched: {found.scanned}{notes}; "
        "give the summary_dir or log_dir of a run"
    )


def nearest(tag: str, tags: list[str]) -> str:
    """Return in words which of the tags come near to one that is not there."""
    near = closest(tag, tags, _NAMED_AT_MOST)
    if not near:
        return f"it has {quoted_list(tags) or 'none at all'}"
    return f"the nearest {'are' if len(near) > 1 else 'is'} {quoted_list(near)}"
