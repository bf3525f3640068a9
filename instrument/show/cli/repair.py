"""`instrument repair PATH...`: append to event files what the ring buffers of killed recorders hold.

With `-o OUT` nothing at PATH is touched: what is whole is copied, in order, those events included.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from functools import partial

from instrument.errors import InstrumentError, NoSuchRun
from instrument.eventfile import names
from instrument.paths import absent
from instrument.ringfile import recover
from instrument.runs import folders, verify
from instrument.runs.verify import Report
from instrument.show.cli import options
from instrument.show.cli.verify import each_file, show
from instrument.show.terminal import tell

_OUT = (
    "copy what is whole, and change nothing at PATH: a directory, or a file that does not exist where PATH is a file; "
    "of several paths each has a folder of its name there"
)
ARGUMENTS = (
    options.FILES,
    options.argument("-o", "--out", metavar="OUT", help=_OUT),
    options.printed("the files that were read"),
)
EXAMPLES = (
    ("repair runs/adam", "append what a killed recorder left in its ring buffer"),
    ("repair runs/adam -o repaired", "new files of what is whole"),
)


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
    outs = options.folders_of(arguments.paths, arguments.out)
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
    written = list[str]()

    def copy(path: str, target: str) -> Report:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        report = verify.repair(path, target)
        written.append(target)
        return report

    work = [(path, partial(copy, path, target)) for path, target in zip(files, targets, strict=True)]
    reports, others = each_file("repair", work)
    status = options.tell_or_raise(others, bool(reports))
    show(arguments, reports, "frames_written", written)
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
