"""What a trainer was told, held against what its files hold: byte for byte, frame for frame.

Files are read three times: in plain Python from the words of the page on the format (`tests.oracle`), by our own
reader, and, those of TensorBoard's dialect, by TensorBoard where it is there (`oracle`).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from instrument import Run
from instrument.codec import wire
from instrument.codec.dialects import LAYOUTS, LINEAGE, OTHERS, SCALARS, SUMMARY, Layout
from instrument.eventfile import names
from instrument.eventfile.blocks import EventFileReader
from instrument.values import LINEAGE_KINDS, ArrayItem, Event
from tests.faults import oracle
from tests.faults.trainer import Plan
from tests.oracle import large_files
from tests.oracle.large_files import Frame

#: After so many no more is to be learnt.
_MOST_COMPLAINTS = 10
#: What stands before the time and the step of an event.
_WALL_TIME, _STEP = 0x09, 0x10
#: TensorBoard's forms of lineage.
_LINEAGE_TAGS = ("_hparams_/", "lineage/")


class Told(NamedTuple):
    """A line of a trainer's book."""

    step: int
    taken: bool
    began_ns: int
    ended_ns: int


class Findings(NamedTuple):
    """Of one run: events that were taken, lost, there twice, and refused; `complaints` says what else is wrong.

    `asked` of the files were read by TensorBoard too.
    """

    events: int
    size_bytes: int
    lost: int
    doubled: int
    refused: int
    complaints: list[str]
    asked: int = 0


def whole_lines(path: str) -> list[list[str]]:
    """The words of a file's lines; not of the last one where a kill cut it, which happens where a page ends. None where
    there is no file yet."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return [line.split() for line in text.split("\n")[:-1]]


def read_book(path: str) -> list[Told]:
    """What the trainer noted of each event; it may have been killed before it could note the last one."""
    return [Told(int(step), taken == "1", int(began), int(ended)) for step, taken, began, ended in whole_lines(path)]


def check(plan: Plan, is_killed: bool) -> Findings:
    """Compare; of a trainer that was killed, the event behind the last in its book may be there."""
    told = read_book(plan.book)
    taken = [one.step for one in told if one.taken]
    refused = len(told) - len(taken)
    paths = files(plan)
    if paths[0] is None:
        complaints = [] if is_killed and not told else ["there is no file"]
        return Findings(len(taken), 0, len(taken), 0, refused, complaints)
    reading = _Reading(plan, paths)
    found, complaints = reading.steps, reading.complaints
    may_follow = {told[-1].step + 1 if told else 0} if is_killed else set()
    strange = set(found) - set(taken) - may_follow
    if strange:
        complaints.append(f"steps {sorted(strange)[:5]} are there and were refused or never recorded")
    if found != sorted(found):
        complaints.append("the steps are not in order")
    complaints += _check_exports(plan, found)
    complaints += _check_with_our_reader(plan, paths, found, reading.missing)
    lost = len(set(taken) - set(found))
    missing = reading.missing
    if missing > refused or (not plan.drop_when_full and not is_killed and missing < refused):
        complaints.append(f"{refused} events were refused; the file says that {missing} are missing")
    asked, strange_to_tensorboard = _check_with_tensorboard(plan, paths)
    size_bytes = sum(path.stat().st_size for path in paths if path)
    complaints += strange_to_tensorboard
    return Findings(len(taken), size_bytes, lost, len(found) - len(set(found)), refused, complaints, asked)


# ---------------------------------------------------------------------- which files


def layout_of(plan: Plan) -> Layout:
    return LAYOUTS[plan.dialect]


def files(plan: Plan) -> list[Path | None]:
    """The files of a plan's layout, in its order; None for one that is not there."""
    directory = Path(plan.directory)
    there = sorted(directory.iterdir()) if directory.is_dir() else []
    return [_only([path for path in there if _has_role(path.name, role, plan)]) for role in layout_of(plan).roles]


def _only(found: list[Path]) -> Path | None:
    assert len(found) <= 1
    return found[0] if found else None


def _has_role(name: str, role: str, plan: Plan) -> bool:
    if role in (SCALARS, OTHERS):
        return ".out.tfevents." in name and name.endswith(".0" if role == SCALARS else ".1")
    parsed = names.parse(name, names.SUMMARY if plan.kind == "summary" else plan.kind)
    return parsed is not None and parsed.is_lineage == (role == LINEAGE)


# ---------------------------------------------------------------------- what they hold


class _Reading:
    """All files of a run, event by event of the first: each must have its part of that event, and nothing else."""

    def __init__(self, plan: Plan, paths: list[Path | None]) -> None:
        self._layout = layout_of(plan)
        self.steps: list[int] = []
        #: How many events the first file says that it misses.
        self.missing = 0
        self.complaints: list[str] = []
        self._frames = [self._read(file, path) for file, path in enumerate(paths)]
        try:
            for frame in self._frames[0]:
                self.steps.append(frame.step)
                self._compare(plan.event(frame.step)._replace(wall_time=frame.wall_time), frame)
                if len(self.complaints) > _MOST_COMPLAINTS:
                    return
            for role, rest in zip(self._layout.roles, self._frames, strict=True):
                self.complaints += [f"{role} has step {one.step} behind its end" for one in itertools.islice(rest, 1)]
        except large_files.Broken as error:
            self.complaints.append(str(error))

    def _read(self, file: int, path: Path | None) -> Iterator[Frame]:
        """The frames of a file that are parts of events."""
        if path is None:
            return
        for number, frame in enumerate(large_files.frames(path)):
            has_version = number == 0 and self._layout.roles[file] != LINEAGE
            if frame.is_version != has_version:
                self.complaints.append(f"frame {number} of {path.name} is a version, or none")
            if frame.missing and file:
                self.complaints.append(f"{path.name} says that events are missing, which is the first file's to say")
            self.missing += frame.missing
            if not frame.is_version and not frame.missing:
                yield frame

    def _compare(self, event: Event, first: Frame) -> None:
        for file, payloads in enumerate(self._layout.encode(event)):
            role = self._layout.roles[file]
            frames = itertools.chain([first], self._frames[0]) if file == 0 else self._frames[file]
            parts = list(itertools.islice(frames, min(len(payloads), 1)))
            if parts and parts[0].payload[0] != _WALL_TIME:
                payloads = self._written_ahead(event, file)
            parts += itertools.islice(frames, len(payloads) - len(parts))
            if len(parts) != len(payloads):
                self.complaints.append(f"{role} ends before step {event.step}")
            for part, pieces in zip(parts, payloads, strict=False):
                if part.step != event.step and role != LINEAGE:
                    self.complaints.append(f"{role} has step {part.step} in place of {event.step}")
                elif not _same(part.payload, pieces):
                    self.complaints.append(f"step {event.step} of {role} differs from what was recorded")
            if role != LINEAGE and event.scalars:
                self.complaints += _check_values(event, role, parts)

    def _written_ahead(self, event: Event, file: int) -> list[wire.Pieces]:
        """The payloads of an event whose tensor was written first: there time and step come last, in 20 bytes."""
        alone = event._replace(items=event.items[-1:], scalars={})
        rest = event._replace(items=event.items[:-1])
        ((_, *pieces),) = self._layout.encode(alone)[file]
        varint = [event.step >> shift & 0x7F | 0x80 for shift in range(0, 63, 7)]
        tail = struct.pack("<BdB10B", _WALL_TIME, event.wall_time, _STEP, *varint, 0)
        return [[*pieces, tail], *self._layout.encode(rest)[file]]


def _same(payload: memoryview, pieces: wire.Pieces) -> bool:
    offset = 0
    for piece in pieces:
        end = offset + len(piece)
        if not np.array_equal(np.frombuffer(payload[offset:end], "u1"), np.frombuffer(piece, "u1")):
            return False
        offset = end
    return offset == len(payload)


def _check_values(event: Event, role: str, parts: list[Frame]) -> list[str]:
    """Scalars and tensors are those recorded, bit for bit, and each other value is there: as the page has it."""
    numbers = {tag: value for part in parts for tag, value in large_files.scalars(part).items()}
    arrays = {tag: one for part in parts for tag, one in large_files.tensors(part, role == OTHERS).items()}
    tags = sorted(tag for part in parts for tag in part.tags if not tag.startswith(_LINEAGE_TAGS))
    items = [] if role == SCALARS else [item for item in event.items if item.kind not in LINEAGE_KINDS]
    scalars = {} if role == OTHERS else dict(event.scalars)
    expected: dict[str, Any] = {
        item.tag: item.array for item in items if isinstance(item, ArrayItem) and item.kind == "tensor"
    }
    complaints = []
    if numbers != scalars:
        complaints.append(f"the scalars of step {event.step} of {role} are {numbers}")
    if tags != sorted([*scalars, *(item.tag for item in items)]):
        complaints.append(f"step {event.step} of {role} has {tags}")
    if arrays.keys() != expected.keys() or not all(_same_bits(arrays[tag], expected[tag]) for tag in arrays):
        complaints.append(f"the tensors of step {event.step} of {role} differ")
    return complaints


def _same_bits(one: Any, other: Any) -> bool:
    return one.dtype == other.dtype and np.array_equal(one.view("u1"), other.reshape(-1).view("u1"))


def _check_exports(plan: Plan, steps: list[int]) -> list[str]:
    """Each tensor is a file of its own, and no half one is left."""
    if not plan.export:
        return []
    expected = {f"{item.tag.replace('/', '%2F')}_{step}.npy": item for step in steps for item in _tensors(plan, step)}
    found = {path.name: path for path in Path(plan.directory).glob("export_*/tensor/*")}
    complaints = [f"exported: {name}" for name in sorted(expected.keys() ^ found.keys())[:5]]
    for name in expected.keys() & found.keys():
        array = expected[name].array
        if np.load(found[name]).tobytes() != array.tobytes():
            complaints.append(f"{name} differs from what was recorded")
    return complaints


def _tensors(plan: Plan, step: int) -> list[ArrayItem]:
    return [item for item in plan.event(step).items if isinstance(item, ArrayItem) and item.kind == "tensor"]


# ---------------------------------------------------------------------- as other readers have it


def _check_with_our_reader(plan: Plan, paths: list[Path | None], steps: list[int], missing: int) -> list[str]:
    """The same steps and gaps in each dialect's files, and no damage."""
    complaints = []
    for path in filter(None, paths):
        reader = EventFileReader(str(path))
        for _ in reader:
            pass
        complaints += [f"damage: {damage}" for damage in reader.damage]
    if plan.kind != "summary":
        return complaints
    for roles in ((SUMMARY, LINEAGE), (SCALARS, OTHERS)):
        mine = [str(path) for path, role in zip(paths, layout_of(plan).roles, strict=True) if path and role in roles]
        if not mine:
            continue
        run = Run(plan.directory, mine)
        found = run.points("scalar", "loss/0", superseded=True).step.tolist() if steps else []
        if found != steps:
            complaints.append(f"our reader finds {len(found)} steps in {roles}, and there are {len(steps)}")
        told = sum(gap.events for gap in run.gaps)
        if told not in ({missing} if roles[0] == layout_of(plan).roles[0] else {0}):
            complaints.append(f"our reader finds that {told} events are missing in {roles}, and it is {missing}")
    return complaints


def _check_with_tensorboard(plan: Plan, paths: list[Path | None]) -> tuple[int, list[str]]:
    """How many files it was asked of, and what it sees otherwise."""
    asked, complaints = 0, []
    for path, role in zip(paths, layout_of(plan).roles, strict=True):
        if path is None or role not in (SCALARS, OTHERS) or (seen := oracle.ask(path)) is None:
            continue
        asked += 1
        if seen != [(frame.step, frame.tags) for frame in large_files.frames(path)]:
            complaints.append(f"TensorBoard sees other events in {path.name}")
    return asked, complaints
