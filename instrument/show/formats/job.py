"""What the modules of all formats take, and what they return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from instrument.runs.points import Points
from instrument.runs.run import Run
from instrument.show.formats.folder import Folder


class Written(NamedTuple):
    """A file, or a folder of files, with the points that are in it; `tag` is empty where it holds all tags."""

    file: str
    kind: str
    tag: str
    points: int


@dataclass
class Job:
    """An export in progress: the run, its tags, the folder to write to, and in words what was left out."""

    run: Run
    to: str
    folder: Folder
    tags: dict[str, list[str]]
    superseded: bool = False
    left_out: list[str] = field(default_factory=list)
    #: Called with each tag whose points are about to be written.
    on_tag: Callable[[str], None] = lambda tag: None

    def points(self, kind: str, tag: str) -> Points:
        """Return the points of a tag that are exported."""
        self.on_tag(tag)
        return self.run.points(kind, tag, self.superseded)

    def leave_out(self, kind: str, reason: str) -> None:
        """Note that a kind has no place in this format."""
        count = len(self.tags[kind])
        self.left_out.append(f"{count} {kind} tag{'s' * (count != 1)}: {reason}")
