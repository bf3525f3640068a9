"""Export a run to the files of other programs.

The problem: a run may be larger than memory, a tag may be any text, and a program that was killed in the middle of an
export must not leave a file that looks whole.

The strategy: a format is a row of `FORMATS` with a function that takes a `Job`, writes below `job.folder`, and yields a
`Written` for each file. Values are decoded one by one, so that the memory used is that of a batch of points or of one
value. `Folder` gives a file its name once all is in it, and `safe_name` a file name to each tag. What a format has no
place for is not an error: the job lists it in words, and the caller tells.

Rejected: one table of all points that each format writes. Arrays and pictures would have to fit in memory, and NumPy,
Parquet and TensorBoard want them in ways that have no row in common.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from instrument.errors import NoSuchRun
from instrument.facts.selection import ALL_TAGS, TagFilter
from instrument.formats import arrays, parquet, tensorboard, text
from instrument.formats.job import Folder, Job, Written
from instrument.runs.run import Run


class Format(NamedTuple):
    """The exporter, the summary for the help, and whether the lineage goes into a `lineage.json` beside the files."""

    export: Callable[[Job], Iterator[Written]]
    summary: str
    with_lineage: bool = True


FORMATS = {
    "csv": Format(text.export, "a CSV file for each kind"),
    "json": Format(text.export, "a JSON file for each kind: a list, one point a line"),
    "parquet": Format(parquet.export, "a Parquet file for each kind (needs pyarrow)"),
    "npy": Format(arrays.export, "a NumPy file for each tag, and one for each array"),
    "tensorboard": Format(tensorboard.export, "TensorBoard's event files", with_lineage=False),
    "png": Format(arrays.export_pictures, "the images, a PNG file each", with_lineage=False),
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
        raise NoSuchRun(wanted.no_match(run))
    job = Job(run, to, Folder(os.fsdecode(out), force), tags, superseded, on_tag=on_tag)
    written = list(FORMATS[to].export(job))
    if FORMATS[to].with_lineage and run.lineage:
        with job.folder.text("lineage.json") as file:
            file.write(json.dumps(text.plain(run.lineage), indent=1, allow_nan=False) + "\n")
        written.append(Written(job.folder.join("lineage.json"), "lineage", "", len(run.lineage)))
    if not written:
        reasons = "; ".join(job.left_out) or "it has no tags"
        raise NoSuchRun(f"nothing of run {run.name!r} can be exported to {to}: {reasons}")
    series = [(kind, tag) for kind, names in tags.items() for tag in names if not superseded]
    count = sum(len(run.points(*key, superseded=True)) - len(run.points(*key)) for key in series)
    if count:
        job.left_out.append(f"{count} superseded point{'s' * (count != 1)}: --superseded exports them too")
    return written, job.left_out
