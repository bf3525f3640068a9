"""A run in other programs' files: the table of formats, and what they share.

A format is a row of `FORMATS` and a module with `export(job)`, which writes below `job.folder` and yields what it has
written.
Values are decoded one by one, so that the memory used is that of a batch of points or of one value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple

from instrument.errors import NoSuchRun
from instrument.runs.points import Points
from instrument.runs.run import Run
from instrument.show.describe import plain
from instrument.show.formats.folder import Folder
from instrument.show.tags import ALL_TAGS, TagFilter


class Format(NamedTuple):
    """Where it is written, in words what it is, and whether the lineage goes into a `lineage.json` beside it."""

    module: str
    summary: str
    with_lineage: bool = True


FORMATS = {
    "csv": Format("instrument.show.formats.text", "a CSV file for each kind"),
    "json": Format("instrument.show.formats.text", "a JSON file for each kind: a list, one point a line"),
    "parquet": Format("instrument.show.formats.parquet", "a Parquet file for each kind (needs pyarrow)"),
    "npy": Format("instrument.show.formats.arrays", "a NumPy file for each tag, and one for each array"),
    "tensorboard": Format("instrument.show.formats.tensorboard", "TensorBoard's event files", with_lineage=False),
    "png": Format("instrument.show.formats.pictures", "the images, a PNG file each", with_lineage=False),
}


class Written(NamedTuple):
    """A file, or a folder of files, with the points that are in it; `tag` is empty where it holds all tags."""

    file: str
    kind: str
    tag: str
    points: int


@dataclass
class Job:
    """What is to be exported, and where to. What cannot be is told in `left_out`."""

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
        """Tell that a kind has no place in this format."""
        count = len(self.tags[kind])
        self.left_out.append(f"{count} {kind} tag{'s' * (count != 1)}: {reason}")


def export(
    run: Run,
    to: str,
    out: str | os.PathLike[str],
    wanted: TagFilter = ALL_TAGS,
    superseded: bool = False,
    force: bool = False,
    on_tag: Callable[[str], None] = lambda tag: None,
) -> tuple[list[Written], list[str]]:
    """Write the points of a run into the folder `out`; what was written, and in words what was not.

    Args:
        to: the format, a key of `FORMATS`.
        wanted: which tags.
        superseded: also the points that a restart replaced.
        force: replace files in a folder that is not empty.
        on_tag: called with each tag whose points are about to be written.

    Raises:
        NoSuchRun: the run has nothing that could be exported.
        InstrumentError: the folder is not empty, or a package is missing.
    """
    tags = {kind: found for kind, tags in run.tags().items() if (found := wanted(tags))}
    if not tags and not wanted.takes_all:
        raise NoSuchRun(wanted.no_match(run, [tag for known in run.tags().values() for tag in known]))
    job = Job(run, to, Folder(os.fsdecode(out), force), tags, superseded, on_tag=on_tag)
    written = list(import_module(FORMATS[to].module).export(job))
    if FORMATS[to].with_lineage and run.lineage:
        with job.folder.text("lineage.json") as file:
            file.write(json.dumps(plain(run.lineage), indent=1, allow_nan=False) + "\n")
        written.append(Written(job.folder.join("lineage.json"), "lineage", "", len(run.lineage)))
    if not written:
        reasons = "; ".join(job.left_out) or "it has no tags"
        raise NoSuchRun(f"nothing of run {run.name!r} can be exported to {to}: {reasons}")
    _tell_superseded(job)
    return written, job.left_out


def _tell_superseded(job: Job) -> None:
    if job.superseded:
        return
    runs = [(kind, tag) for kind, tags in job.tags.items() for tag in tags]
    count = sum(len(job.run.points(*key, superseded=True)) - len(job.run.points(*key)) for key in runs)
    if count:
        job.left_out.append(f"{count} superseded point{'s' * (count != 1)}: --superseded exports them too")
