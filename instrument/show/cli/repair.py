"""`instrument repair PATH... -o OUT`: copy what is whole, in order. The files themselves are never touched."""

from __future__ import annotations

import argparse
import os

from instrument.errors import InstrumentError, NoSuchRun
from instrument.eventfile import names
from instrument.read import verify
from instrument.read.verify import Report
from instrument.show import forms
from instrument.show.cli.verify import show, size
from instrument.show.progress import Progress, in_bytes
from instrument.show.runs import tell, tell_or_raise
from instrument.show.written import folders_of


def configure(parser: argparse.ArgumentParser) -> None:
    what = "an event file, a run, or a directory with runs below it"
    parser.add_argument("paths", metavar="PATH", nargs="+", help=what)
    out = "where the new files go: a directory, or a file that does not exist where PATH is a file; of several paths "
    out += "each has a folder of its name there"
    parser.add_argument("-o", "--out", metavar="OUT", required=True, help=out)
    forms.add_forms(parser, "the files that were read")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    outs = folders_of(arguments.paths, arguments.out)
    files, targets = list[str](), list[str]()
    for path, out in zip(arguments.paths, outs, strict=True):
        some, notes = verify.files_at(path)
        for note in notes:
            tell(note)
        _check_out(path, out)
        files += some
        targets += [_target(one, path, out) for one in some]
    taken = [target for target in targets if os.path.lexists(target)]
    if taken:
        raise InstrumentError(f"{taken[0]} exists; repair writes new files only, give another -o")
    reports, others, written = list[Report](), list[Exception](), list[str]()
    with Progress("repair", sum(map(size, files)), in_bytes) as progress:
        for path, target in zip(files, targets, strict=True):
            progress.advance(path)
            os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
            try:
                reports.append(verify.repair(path, target))
                written.append(target)
            except NoSuchRun as error:
                others.append(error)
            progress.advance("", size(path))
    status = tell_or_raise(others, bool(reports))
    show(reports, arguments, counted="frames_written", written=written)
    frames = sum(report.values for report in reports)
    tell(f"wrote {frames} frames into {len(reports)} files at {arguments.out}")
    return status


def _check_out(path: str, out: str) -> None:
    """Refuse a name under which no reader would take what is written."""
    if os.path.isdir(path):
        if os.path.isfile(out):
            raise InstrumentError(f"{out} is a file; -o takes a folder, which is made where it is missing")
    elif (
        not os.path.isdir(out)
        and names.recognise(os.path.basename(path))
        and not names.recognise(os.path.basename(out))
    ):
        raise InstrumentError(
            f"{out} is no folder, and no event file by its name, so that nothing would read it; give a folder that is "
            f"there, or a file with a name such as {os.path.basename(path)}"
        )


def _target(path: str, root: str, out: str) -> str:
    """Where the copy of a file goes: to the same place below `out` as it has below `root`."""
    if os.path.isdir(root):
        return os.path.join(out, os.path.relpath(path, root))
    return os.path.join(out, os.path.basename(path)) if os.path.isdir(out) else out
