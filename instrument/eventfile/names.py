"""File names: `{prefix}.out.events.summary.{seconds}.{device}.{host}{suffix}` and their lineage twins.

A profile is in a file of its own, with `profile` in place of `summary`: MindInsight and TensorBoard pass it over.
TensorBoard's files are `events.out.tfevents.{seconds}.{host}` with a process number and a counter behind it, and those
that a training of several ranks writes end in `.rank{rank}`.

MindInsight finds a file by `summary.<digits>` and sorts by that number, which must be seconds: with milliseconds its
whole listing fails. A name is never used twice, and nothing that exists is ever opened for writing from its start.
"""

from __future__ import annotations

import itertools
import os
import platform
import re
from dataclasses import dataclass

SUFFIX = "_MS"
LINEAGE_SUFFIX = "_lineage"
#: Ring files stand beside event files, hidden from all readers.
RING_PREFIX = ".instrument-ring-"
SUMMARY, PROFILE, TENSORBOARD = "summary", "profile", "tensorboard"

_PATTERNS = {
    kind: re.compile(rf"(?P<prefix>.*)\.out\.events\.{kind}\.(?P<seconds>\d+)\.(?P<rest>.*)", re.ASCII | re.DOTALL)
    for kind in (SUMMARY, PROFILE)
}
_TENSORBOARD = re.compile(r"(?P<prefix>.*)\btfevents(?:\.(?P<seconds>\d+)(?:\.(?P<rest>.*))?)?", re.ASCII | re.DOTALL)
#: What stands behind the host: process number, counter, our rank, and what TensorFlow appends.
_BEHIND_HOST = re.compile(r"(\.\d+)*(\.rank(?P<rank>\d+))?(\.v2)?$", re.ASCII)
#: The counter among them.
_NUMBER = re.compile(r"(?P<number>\.\d+)(\.rank\d+)?(\.v2)?$", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")

#: Rank, or device number of a single process (-1 where the file name has none), and host name.
Writer = tuple[int, str]


@dataclass(frozen=True)
class EventFileName:
    """The parts of a name. `device` is the device or rank number, -1 where the name has none."""

    prefix: str
    seconds: int
    device: int
    host: str
    is_lineage: bool
    kind: str = SUMMARY

    @property
    def writer(self) -> Writer:
        """Return who wrote it: files of one device on one host belong to one series of restarts."""
        return (self.device, self.host)


def host() -> str:
    """Return this machine's name, in characters that are safe in a file name everywhere."""
    return _UNSAFE.sub("_", platform.node()) or "localhost"


def join(prefix: str, seconds: int, device: int, suffix: str, kind: str = SUMMARY, host_name: str = "") -> str:
    """Return the name of a file that is written on this machine, or on the named one."""
    return f"{prefix}.out.events.{kind}.{seconds}.{device}.{host_name or host()}{suffix}"


def parse(name: str, kind: str = SUMMARY) -> EventFileName | None:
    """Return the parts of the name of an event file of that kind; None for any other file."""
    match = _PATTERNS[kind].fullmatch(name)
    if match is None:
        return None
    rest = match["rest"]
    is_lineage = rest.endswith(LINEAGE_SUFFIX)
    rest = rest.removesuffix(LINEAGE_SUFFIX) if is_lineage else rest.removesuffix(SUFFIX)
    device, dot, tail = rest.partition(".")
    if dot and device.isascii() and device.isdigit():
        return EventFileName(match["prefix"], int(match["seconds"]), int(device), tail, is_lineage, kind)
    return EventFileName(match["prefix"], int(match["seconds"]), -1, rest, is_lineage, kind)


def recognise(name: str) -> EventFileName | None:
    """Return the parts of the name of an event file of any kind, TensorBoard's too; None for any other file."""
    if name.startswith(RING_PREFIX):  # its host may be called anything
        return None
    return parse(name) or parse(name, PROFILE) or _parse_tensorboard(name)


def recorder_of(name: str) -> str:
    """Return what the names of a recorder's files of one kind have in common; TensorBoard's dialect has two of them."""
    if (match := _NUMBER.search(name)) is None or _TENSORBOARD.fullmatch(name) is None:
        return name
    return name[: match.start()] + name[match.end("number") :]


def _parse_tensorboard(name: str) -> EventFileName | None:
    match = _TENSORBOARD.fullmatch(name) if "tfevents" in name else None
    if match is None:
        return None
    rest = match["rest"] or ""
    behind = _BEHIND_HOST.search(rest)
    assert behind is not None  # nothing at all fits, too
    device = -1 if behind["rank"] is None else int(behind["rank"])
    return EventFileName(
        match["prefix"], int(match["seconds"] or 0), device, rest[: behind.start()], False, TENSORBOARD
    )


def create(directory: str, prefix: str, seconds: int, device: int, suffix: str, kind: str = SUMMARY) -> str:
    """Create an empty event file that did not exist and return its path.

    Where the name is taken, the next second's is tried: readers order files by that number, so a later writer
    still sorts behind an earlier one. The mode is 0666 less the umask.

    Raises:
        OSError: the directory cannot be written.
    """
    while True:
        path = os.path.join(directory, join(prefix, seconds, device, suffix, kind))
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666))
        except FileExistsError:
            seconds += 1
            continue
        return path


def create_tensorboard(directory: str, prefix: str, seconds: int, of_scalars: bool, rank: int | None = None) -> str:
    """Create an empty file with the name of one of TensorBoard's that did not exist, and return its path.

    Its number is even for scalars and odd for everything else: tools that take scalars alone can be given their files.

    Raises:
        OSError: the directory cannot be written.
    """
    of_rank = "" if rank is None else f".rank{rank}"
    for number in itertools.count(0 if of_scalars else 1, 2):
        path = os.path.join(directory, f"{prefix}.out.tfevents.{seconds}.{host()}.{os.getpid()}.{number}{of_rank}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o666))
        except FileExistsError:
            continue
        return path
    raise AssertionError("there is no end of numbers")
