"""`instrument report RUN... -o run.html`: write runs into one static page that opens without a network."""

from __future__ import annotations

import argparse
import os

from instrument.analyse.layout import escape
from instrument.atomic_write import replacing
from instrument.show import report
from instrument.show.cli import options
from instrument.show.cli.output import put
from instrument.show.terminal import prose, tell
from instrument.wording import counted

_ENDINGS = (".html", ".htm")
_OUT = "the page to write, whose name ends in .html; one that is there is replaced"
_TITLE = "what stands at the top (default: the runs)"
ARGUMENTS = (
    options.RUNS,
    options.argument("-o", "--output", metavar="OUT", required=True, help=_OUT),
    options.argument("--title", metavar="TEXT", default="", help=_TITLE),
    *options.tags(),
    *options.DIRECTIONS,
    options.printed("what was written"),
)
EXAMPLES = (
    ("report runs -o runs.html", "all runs in one page"),
    ("report runs/adam -o adam.html --exclude 'system/*'", "one run, without some of its tags"),
)


def run(arguments: argparse.Namespace) -> int:
    if os.path.splitext(arguments.output)[1].lower() not in _ENDINGS:
        arguments.wrong_call(f"--output is {escape(arguments.output)}; its name ends in .html")
    runs = options.OpenedRuns(arguments.runs)
    rows = [{"run": run_name, "path": opened.path} for run_name, opened in runs.pairs()]
    made = report.report(
        runs.quietly(), options.chosen_tags(arguments), options.chosen_directions(arguments), arguments.title
    )
    content = made.html.encode(errors="backslashreplace")
    with replacing(arguments.output) as file:
        file.write(content)
    tables = {
        "written": [{"file": arguments.output, "bytes": len(content), "charts": made.charts}],
        "runs": rows,
        "left_out": [{"reason": reason} for reason in made.left_out],
    }
    text = f"{escape(arguments.output)}: {counted(len(rows), 'run')}, {made.charts} charts and pictures"
    put(arguments, tables, [prose(text, "  ")], tables)
    if made.left_out:
        tell(f"not in the page: {len(made.left_out)}; its section Health lists them")
    return runs.status
