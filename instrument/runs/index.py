"""What was found in the runs of a tree, kept between one look and the next.

An index is never trusted over the files: what it says of a run counts only while each of the run's files has the
device, inode, size, time of change and last bytes that it had. It stands in the user's cache (`XDG_CACHE_HOME`, or
`~/.cache/instrument`), one file a tree; where that cannot be written there is none, and nothing is lost but time.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Iterable
from typing import Any

from instrument.errors import InstrumentError
from instrument.eventfile.access import OpenFile
from instrument.runs.run import Run

#: Changes with what is kept, and with how it is found.
_VERSION = 5
_TAIL_BYTES = 64
_MOST_BYTES = 256 << 20

Facts = dict[str, Any]
_State = list[Any]


class Index:
    """Facts about the runs below `roots`: standard JSON, whatever the caller wants to know again."""

    def __init__(self, roots: Iterable[str], purpose: str) -> None:
        key = "\0".join([f"{_VERSION} {purpose}", *map(os.path.realpath, roots)])
        digest = hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()
        self._path = os.path.join(_cache(), f"{digest[:32]}.json")
        self._entries = _load(self._path)
        self._used: dict[str, list[Any]] = {}
        self._states: dict[str, _State | None] = {}
        self._is_changed = False

    def facts(self, run: Run) -> Facts | None:
        """Return what was kept of a run; None if nothing was, or if one of its files has changed.

        Ask before the run is read: what is kept then is known by how its files were before.
        """
        entry, states = self._entries.get(run.path), _states(run)
        if not isinstance(entry, list) or len(entry) != 2 or entry[0] != states:
            self._states[run.path] = states
            return None
        self._used[run.path] = entry
        facts: Facts = entry[1]
        return facts

    def keep(self, run: Run, facts: Facts) -> None:
        """Keep facts about a run that `facts` knew nothing of."""
        states = self._states.get(run.path)
        if states is not None:
            self._used[run.path] = [states, facts]
            self._is_changed = True

    def save(self) -> None:
        """Write the index, with the runs that were asked for since it was opened."""
        if not self._is_changed:
            return
        try:
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=os.path.dirname(self._path), delete=False) as file:
                json.dump(self._used, file)
            os.replace(file.name, self._path)
        except OSError:
            return  # the next look takes longer


def _cache() -> str:
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(home, "instrument")


def _load(path: str) -> dict[str, Any]:
    try:
        if os.path.getsize(path) > _MOST_BYTES:
            return {}
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _states(run: Run) -> _State | None:
    """Return what identifies each file of a run; None if one cannot be read."""
    try:
        return [_state(path) for path in (*run.files, *run.traces)]
    except (OSError, InstrumentError):
        return None


def _state(path: str) -> _State:
    with OpenFile(path) as file:
        tail = file.read(max(0, file.size_bytes - _TAIL_BYTES), _TAIL_BYTES)
        return [path, *file.identity, file.size_bytes, file.changed_ns, bytes(tail).hex()]
