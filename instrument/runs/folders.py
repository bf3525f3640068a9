"""Which folders of a tree are runs: those that hold an event file themselves.

Real folders are walked before links, and each folder is entered once, however many links lead to it: a folder that is
also linked goes by its real path, and a cycle of links ends by itself.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from instrument.eventfile import names
from instrument.ringfile import pending
from instrument.ringfile.header import is_ring_file
from instrument.wording import natural, quoted_list

#: The search that only serves an error message ends here.
_SEARCHED_FOLDERS = 2000


@dataclass
class RunFolders:
    """The folders that hold event files, with their paths; `rings` has those with ring files, in any order; `notes` say
    what was skipped and why."""

    folders: dict[str, list[str]] = field(default_factory=dict)
    rings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    scanned: int = 0


def event_files(directory: str) -> list[str]:
    """Return the paths of the event files directly in `directory`, those of profiles too, the oldest first.

    Raises:
        OSError: the directory cannot be listed.
    """
    with os.scandir(directory) as entries:
        return _event_files(directory, entries)


def event_files_if_any(directory: str) -> list[str]:
    """Return the same; an empty list if the directory does not exist."""
    try:
        return event_files(directory)
    except FileNotFoundError:
        return []


def _event_files(directory: str, entries: Iterable[os.DirEntry[str]]) -> list[str]:
    files, rings = [], []
    for entry in entries:
        name = names.recognise(entry.name)
        if name is not None and os.path.isfile(entry.path):
            files.append((name.seconds, entry.name, entry.path))
        elif is_ring_file(entry.name):
            rings.append(entry.path)
    pending.look(directory, rings)
    return [path for _, _, path in sorted(files)]


def find(root: str, max_folders: int | None = None) -> RunFolders:
    """Look for runs at and below `root`, parents before children; a note says if `max_folders` ended the search."""
    result = RunFolders()
    seen: set[tuple[int, int]] = set()
    folders, links = [root], deque[str]()
    while folders or links:
        if result.scanned == max_folders:
            result.notes.append(f"the search ended after {max_folders} folders")
            break
        directory = folders.pop() if folders else links.popleft()
        try:
            entries = _enter(directory, seen)
        except OSError as error:
            result.notes.append(f"{directory} cannot be read: {error.strerror}")
            continue
        result.scanned += 1
        if files := _event_files(directory, entries):
            result.folders[directory] = files
        if any(is_ring_file(entry.name) for entry in entries):
            result.rings.append(directory)
        for entry in entries:
            if not entry.is_symlink():
                folders += [entry.path] if entry.is_dir() else []
            elif os.path.isdir(entry.path):
                links.append(entry.path)
            elif not os.path.exists(entry.path):
                result.notes.append(f"{entry.path} is a broken link")
    by_path = sorted(result.folders.items(), key=lambda item: [natural(part) for part in item[0].split(os.sep)])
    return RunFolders(
        dict(by_path), sorted(result.rings, key=natural), sorted(result.notes, key=natural), result.scanned
    )  # fmt: skip


def no_event_file(directory: str) -> str:
    """Return why `read` cannot open a directory, and what to do."""
    tree = find(directory, _SEARCHED_FOLDERS)
    if tree.folders:
        below = [os.path.relpath(folder, directory) for folder in tree.folders]
        return f"{directory} holds no event file itself; runs below it: {quoted_list(below)}; open one of them"
    notes = f" ({'; '.join(tree.notes)})" if tree.notes else ""
    return (
        f"no event file at or below {directory}, folders searched: {tree.scanned}{notes}; "
        "give the summary_dir or log_dir of a run"
    )


def _enter(directory: str, seen: set[tuple[int, int]]) -> list[os.DirEntry[str]]:
    """Return the entries of a folder by name; an empty list if it was seen before."""
    status = os.stat(directory)
    identity = (status.st_dev, status.st_ino)
    if identity in seen:
        return []
    seen.add(identity)
    with os.scandir(directory) as entries:
        return sorted(entries, key=lambda entry: entry.name)
