"""`instrument repair PATH...`: append to event files what the ring buffers of killed recorders hold.

With `-o OUT` nothing at PATH is touched: what is whole is copied, in order, those events included.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from instrument.errors import InstrumentError, NoSuchRun
from instrument.eventfile import names
from instrument.paths import absent
from instrument.ringfile import recover
from instrument.runs import folders, verify
from instrument.runs.verify import Report
from instrument.show import output
from instrument.show.cli.verify import show, size
from instrument.show.opened_runs import tell, tell_or_raise
from instrument.show.output import folders_of
from instrument.show.progress import Progress, in_bytes


def configure(parser: argparse.ArgumentParser) -> None:
    what = "an event file, a run, or a directory with runs below it"
    parser.add_argument("paths", metavar="PATH", nargs="+", help=what)
    out = "copy what is whole, and change nothing at PATH: a directory, or a file that does not exist where PATH is a "
    out += "file; of several paths each has a folder of its name there"
    parser.add_argument("-o", "--out", metavar="OUT", help=out)
    output.add_output_options(parser, "the files that were read")
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    return _append(arguments.paths) if arguments.out is None else _copy(arguments)


def _append(paths: Sequence[str]) -> int:
    """Recover all rings at and below directories, or beside files; return 1 if one could not be."""
    directories = dict.fromkeys(directory for path in paths for directory in _ring_directories(path))
    results = [result for directory in directories for result in recover.recover_all(directory, is_asked=True)]
    for result in results:
        for reason in result.damage:
            tell(f"{result.path}: {reason}; that part of it is lost")
        if result.problem:
            tell(f"{result.path} was left as it is: {result.problem}")
        else:
            tell(f"appended {result.events} events of {result.path} to {len(result.files)} event files")
    if not results:
        tell(
            f"nothing to append: no recorder that was killed has left a ring buffer at {', '.join(paths)}; "
            "give -o OUT to copy what is whole of damaged files"
        )
    return 1 if any(result.problem for result in results) else 0


def _ring_directories(path: str) -> list[str]:
    """Return the directories at and below a path that hold ring files; that of a file, whether it does or not."""
    if not os.path.exists(path):
        raise NoSuchRun(f"{path} {absent(path)}; an event file or a directory is expected")
    return folders.find(path).rings if os.path.isdir(path) else [os.path.dirname(path) or os.curdir]


def _copy(arguments: argparse.Namespace) -> int:
    outs = folders_of(arguments.paths, arguments.out)
    files, targets = list[str](), list[str]()
    for path, out in zip(arguments.paths, outs, strict=True):
        some, notes = verify.files_at(path)
        for note in notes:
            tell(note)
        _check_out(path, out)
        files += some
        targets += [_target(file, path, out) for file in some]
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
    """Return the path of a copy: its place below `out` is that of the file below `root`."""
    if os.path.isdir(root):
        return os.path.join(out, os.path.relpath(path, root))
    return os.path.join(out, os.path.basename(path)) if os.path.isdir(out) else out
