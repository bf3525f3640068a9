"""Export a run to the files of other programs.

A format is a row of `FORMATS` and a module with `export(job)`, which writes below `job.folder` and yields a `Written`
for each file. Values are decoded one by one: the memory used is that of a batch of points or of one value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from instrument.errors import NoSuchRun
from instrument.facts.encoding import plain
from instrument.facts.tags import ALL_TAGS, TagFilter
from instrument.runs.run import Run
from instrument.show.formats.job import Folder, Job, Written


class Format(NamedTuple):
    """The module, the summary for the help, and whether the lineage goes into a `lineage.json` beside the files."""

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


def export(
    run: Run,
    to: str,
    out: str | os.PathLike[str],
    wanted: TagFilter = ALL_TAGS,
    superseded: bool = False,
    force: bool = False,
    on_tag: Callable[[str], None] = lambda tag: None,
) -> tuple[list[Written], list[str]]:
    """Write the points of a run into the folder `out`; return what was written, and in words what was not.

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
    tags = {kind: matching for kind, tags in run.tags().items() if (matching := wanted(tags))}
    if not tags and not wanted.takes_all:
        raise NoSuchRun(wanted.no_match(run, [tag for names in run.tags().values() for tag in names]))
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
