"""`instrument export RUN --to FORMAT -o OUT`: every point of a run in files of another format."""

from __future__ import annotations

import argparse

from instrument.read.run import read
from instrument.show import forms
from instrument.show.formats import FORMATS, export
from instrument.show.runs import tell, tell_losses
from instrument.show.written import print_written


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    formats = "\n".join(f"  {to:<12} {one.summary}" for to, one in FORMATS.items())
    parser.epilog = f"formats:\n{formats}"
    parser.add_argument("run", metavar="RUN", help="the directory of a run, or one of its event files")
    parser.add_argument("--to", metavar="FORMAT", choices=list(FORMATS), required=True, help=", ".join(FORMATS))
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help="the folder to write to, new or empty")
    parser.add_argument("--tag", metavar="GLOB", default="*", help="only tags that match, as in 'loss/*'")
    parser.add_argument("--superseded", action="store_true", help="also points that a restart replaced")
    parser.add_argument("--force", action="store_true", help="write into a folder that is not empty, too")
    forms.add_forms(parser, "what was written")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    found = read(arguments.run)
    written, left_out = export(found, arguments.to, arguments.out, arguments.tag, arguments.superseded, arguments.force)
    print_written(arguments, written, left_out, has_tags=any(one.tag for one in written))
    for reason in left_out:
        tell(f"not exported: {reason}")
    tell_losses(found)
    return 0
