"""`instrument export RUN... --to FORMAT -o OUT`: write every point of runs into files of another format."""

from __future__ import annotations

import argparse
import os

from instrument.analyse.layout import Cell
from instrument.errors import NoSuchRun
from instrument.formats import FORMATS, export
from instrument.formats.job import Folder, Written
from instrument.runs.run import Run
from instrument.show.cli import options
from instrument.show.cli.output import put_written, written_row
from instrument.show.terminal import Progress, tell

_OUT = "the folder to write to, new or empty; of several runs each has a folder of its name there"
ARGUMENTS = (
    options.RUNS,
    options.argument("--to", metavar="FORMAT", choices=list(FORMATS), required=True, help=", ".join(FORMATS)),
    options.argument("-o", "--out", metavar="OUT", required=True, help=_OUT),
    *options.tags(),
    options.flag("--superseded", "also points that a restart replaced"),
    options.FORCE,
    options.printed("what was written"),
)
EPILOG = "\n".join(["formats:", *(f"  {to:<12} {form.summary}" for to, form in FORMATS.items())])
EXAMPLES = (
    ("export runs/adam --to csv -o out", "a CSV file a kind"),
    ("export runs --to parquet -o out", "all runs, a folder each"),
    ("export runs/adam --to tensorboard -o out", "event files for TensorBoard"),
    ("export runs/adam --to npy --tag 'loss/*' -o out", "some of the tags, for NumPy"),
)


def run(arguments: argparse.Namespace) -> int:
    runs = options.OpenedRuns(arguments.runs)
    is_one = len(runs) == 1
    Folder(arguments.out, arguments.force)  # a folder that is not empty is refused before anything is written
    written, left_out, lacking = list[dict[str, Cell]](), list[dict[str, Cell]](), list[dict[str, Cell]]()
    for run_name, opened in runs:
        out = arguments.out if is_one else os.path.join(arguments.out, run_name)
        try:
            files, reasons = _export(arguments, opened, out)
        except NoSuchRun as error:
            lacking.append({"run": run_name, "path": opened.path, "reason": str(error)})
            continue
        written += [written_row(run_name, opened, file) for file in files]
        left_out += [{"run": run_name, "path": opened.path, "reason": reason} for reason in reasons]
    if not written:
        options.tell_or_raise([NoSuchRun(str(row["reason"])) for row in lacking], has_result=False)
    left_out += lacking
    put_written(arguments, written, left_out, has_tags=any(row["tag"] for row in written))
    for row in left_out:
        tell(f"not exported: {'' if is_one else str(row['run']) + ': '}{row['reason']}")
    return runs.status


def _export(arguments: argparse.Namespace, run: Run, out: str) -> tuple[list[Written], list[str]]:
    wanted = options.chosen_tags(arguments)
    count = sum(len(wanted(names)) for names in run.tags().values())
    with Progress("export", count, "{} tags".format) as progress:
        return export(run, arguments.to, out, wanted, arguments.superseded, arguments.force, progress.begin)
