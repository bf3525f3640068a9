"""`instrument report RUN... -o run.html`: write runs into one static page that opens without a network."""

from __future__ import annotations

import argparse
import os

from instrument.atomic_write import replacing
from instrument.facts.describe import Row
from instrument.show import options, output, report_page
from instrument.show.opened_runs import PATHS, OpenedRuns, tell
from instrument.show.tables import escape, prose

_ENDINGS = (".html", ".htm")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help=PATHS)
    out = "the page to write, whose name ends in .html; one that is there is replaced"
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help=out)
    parser.add_argument("--title", metavar="TEXT", default="", help="what stands at the top (default: the runs)")
    options.add_tag_options(parser)
    options.add_direction_options(parser)
    output.add_output_options(parser, "what was written")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    if os.path.splitext(arguments.output)[1].lower() not in _ENDINGS:
        arguments.wrong_call(f"--output is {escape(arguments.output)}; its name ends in .html")
    runs = OpenedRuns(arguments.runs)
    rows: list[Row] = [{"run": run_name, "path": opened.path} for run_name, opened in runs.pairs()]
    made = report_page.report(
        runs.quietly(), options.chosen_tags(arguments), options.chosen_directions(arguments), arguments.title
    )
    content = made.html.encode(errors="backslashreplace")
    with replacing(arguments.output) as file:
        file.write(content)
    written: Row = {"file": arguments.output, "bytes": len(content), "charts": made.charts}
    left_out = [{"reason": reason} for reason in made.left_out]
    if arguments.json:
        output.print_json({"written": [written], "runs": rows, "left_out": left_out})
    elif arguments.csv:
        output.print_tables({"written": [written], "runs": rows, "left_out": left_out})
    else:
        count = len(rows)
        written_runs = f"{count} run{'s' * (count != 1)}, {made.charts} charts and pictures"
        print(prose(f"{escape(arguments.output)}: {written_runs}", "  "))
    if made.left_out:
        tell(f"not in the page: {len(made.left_out)}; its section Health lists them")
    return runs.status
