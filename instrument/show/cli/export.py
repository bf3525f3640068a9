"""`instrument export RUN... --to FORMAT -o OUT`: write every point of runs into files of another format."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from instrument.errors import NoSuchRun
from instrument.facts.describe import Row
from instrument.formats import FORMATS, export
from instrument.formats.job import Folder
from instrument.runs.run import Run
from instrument.show import options, output
from instrument.show.opened_runs import PATHS, OpenedRuns, tell, tell_or_raise
from instrument.show.output import print_written, written_row
from instrument.show.progress import Progress


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    formats = "\n".join(f"  {to:<12} {form.summary}" for to, form in FORMATS.items())
    parser.epilog = f"formats:\n{formats}"
    parser.add_argument("runs", metavar="RUN", nargs="+", help=PATHS)
    parser.add_argument("--to", metavar="FORMAT", choices=list(FORMATS), required=True, help=", ".join(FORMATS))
    out = "the folder to write to, new or empty; of several runs each has a folder of its name there"
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help=out)
    options.add_tag_options(parser)
    parser.add_argument("--superseded", action="store_true", help="also points that a restart replaced")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty, too")
    output.add_output_options(parser, "what was written")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    runs = OpenedRuns(arguments.runs)
    is_one = len(runs) == 1
    Folder(arguments.out, arguments.force)  # a folder that is not empty is refused before anything is written
    written, left_out, lacking = list[Row](), list[Row](), list[Row]()
    for run_name, opened in runs:
        try:
            some = _export(
                arguments, run_name, opened, arguments.out if is_one else os.path.join(arguments.out, run_name)
            )
        except NoSuchRun as error:
            lacking.append({"run": run_name, "path": opened.path, "reason": str(error)})
        else:
            written += some[0]
            left_out += some[1]
    if not written:
        tell_or_raise([NoSuchRun(row["reason"]) for row in lacking], has_result=False)
    left_out += lacking
    print_written(arguments, written, left_out, has_tags=any(row["tag"] for row in written))
    for row in left_out:
        tell(f"not exported: {'' if is_one else row['run'] + ': '}{row['reason']}")
    return runs.status


def _export(arguments: argparse.Namespace, run_name: str, run: Run, out: str) -> tuple[list[Row], list[Row]]:
    """Write one run into a folder; return rows for what was written, and for what was not."""
    wanted = options.chosen_tags(arguments)
    count = sum(len(wanted(names)) for names in run.tags().values())
    with Progress("export", count, "{} tags".format) as progress:
        written, left_out = export(
            run, arguments.to, out, wanted, arguments.superseded, arguments.force, _counter(progress)
        )
    reasons = [{"run": run_name, "path": run.path, "reason": reason} for reason in left_out]
    return [written_row(run_name, run, file) for file in written], reasons


def _counter(progress: Progress) -> Callable[[str], None]:
    """Return what counts a tag as done when the next one begins."""
    begun = [0]

    def on_tag(tag: str) -> None:
        progress.advance(tag, begun[0])
        begun[0] = 1

    return on_tag
