"""What a trainer was told, held against what its files hold: byte for byte, frame for frame."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from instrument.codec import event as event_codec
from instrument.codec import gap as gap_codec
from instrument.codec import lineage as lineage_codec
from instrument.codec import wire
from instrument.eventfile import names
from instrument.eventfile.reader import EventFileReader
from instrument.values import LINEAGE_KINDS, Event
from tests.faults.trainer import Plan

_WALL_TIME, _STEP, _VERSION, _GAP = 1, 2, 3, 101
_LINEAGE_HEAD_BYTES = 9


class Told(NamedTuple):
    """A line of a trainer's book."""

    step: int
    taken: bool
    began_ns: int
    ended_ns: int


class Findings(NamedTuple):
    """Of one run: events that were taken, lost, there twice, and refused; `complaints` says what else is wrong."""

    events: int
    size_bytes: int
    lost: int
    doubled: int
    refused: int
    complaints: list[str]


def read_book(path: str) -> list[Told]:
    """Nothing where there is no book yet."""
    if not Path(path).exists():
        return []
    lines = [line.split() for line in Path(path).read_text().splitlines()]
    return [Told(int(step), taken == "1", int(began), int(ended)) for step, taken, began, ended in lines]


def check(plan: Plan, is_killed: bool) -> Findings:
    """Compare; of a trainer that was killed, the event behind the last in its book may be there."""
    told = read_book(plan.book)
    taken = [one.step for one in told if one.taken]
    refused = len(told) - len(taken)
    path = _file(plan, names.SUMMARY if plan.kind == "summary" else plan.kind, is_lineage=False)
    if path is None:
        complaints = [] if is_killed and not told else ["there is no file"]
        return Findings(len(taken), 0, len(taken), 0, refused, complaints)
    found, missing, complaints = _read(plan, path)
    may_follow = {told[-1].step + 1 if told else 0} if is_killed else set()
    strange = set(found) - set(taken) - may_follow
    if strange:
        complaints.append(f"steps {sorted(strange)[:5]} are there and were refused or never recorded")
    if found != sorted(found):
        complaints.append("the steps are not in order")
    complaints += _check_lineage(plan, found)
    complaints += _check_exports(plan, found)
    lost = len(set(taken) - set(found))
    if missing > refused or (not plan.drop_when_full and not is_killed and missing < refused):
        complaints.append(f"{refused} events were refused; the file says that {missing} are missing")
    return Findings(len(taken), path.stat().st_size, lost, len(found) - len(set(found)), refused, complaints)


def _file(plan: Plan, kind: str, is_lineage: bool) -> Path | None:
    directory = Path(plan.directory)
    if not directory.is_dir():
        return None
    parsed = ((path, names.parse(path.name, kind)) for path in sorted(directory.iterdir()))
    found = [path for path, name in parsed if name is not None and name.is_lineage == is_lineage]
    assert len(found) <= 1
    return found[0] if found else None


def _read(plan: Plan, path: Path) -> tuple[list[int], int, list[str]]:
    """The steps in the file, how many events it says that it misses, and what is wrong."""
    steps: list[int] = []
    missing, complaints = 0, []
    reader = EventFileReader(str(path))
    for number, payload in enumerate(reader):
        step, wall_time, what, body = _head(payload)
        if what == _VERSION:
            complaints += [] if number == 0 else [f"a second version at frame {number}"]
        elif what == _GAP:
            missing += gap_codec.decode(body).events
        else:
            steps.append(step)
            expected = plan.event(step)._replace(wall_time=wall_time)
            if not _same(payload, event_codec.encode(expected)):
                complaints.append(f"step {step} differs from what was recorded")
    return steps, missing, complaints + [f"damage: {damage}" for damage in reader.damage]


def _head(payload: memoryview) -> tuple[int, float, int, memoryview]:
    """Step, wall time, and the number and content of the field behind them."""
    step, wall_time = 0, 0.0
    for field in wire.fields(payload):
        if field[0] == _WALL_TIME:
            wall_time = wire.as_double(field)
        elif field[0] == _STEP:
            step = wire.as_int(field)
        else:
            return step, wall_time, field[0], wire.as_bytes(field)
    return step, wall_time, 0, memoryview(b"")


def _same(payload: memoryview, payloads: list[wire.Pieces]) -> bool:
    (pieces,) = payloads
    offset = 0
    for piece in pieces:
        end = offset + len(piece)
        if not np.array_equal(np.frombuffer(payload[offset:end], "u1"), np.frombuffer(piece, "u1")):
            return False
        offset = end
    return offset == len(payload)


def _check_lineage(plan: Plan, steps: list[int]) -> list[str]:
    """Each event's lineage is in the twin file, if its values are in the summary file, in the same order."""
    expected = [data for step in steps for data in _lineage(plan.event(step))]
    path = _file(plan, names.SUMMARY, is_lineage=True)
    if path is None:
        return ["there is no lineage file"] if expected else []
    reader = EventFileReader(str(path))
    found = [bytes(payload[_LINEAGE_HEAD_BYTES:]) for payload in reader]
    complaints = [f"damage: {damage}" for damage in reader.damage]
    return complaints if found == expected else [*complaints, "the lineage file differs from what was recorded"]


def _lineage(event: Event) -> Iterator[bytes]:
    for item in event.items:
        if item.kind in LINEAGE_KINDS:
            assert isinstance(item.payload, bytes)
            yield b"".join(lineage_codec.encode_event(item.kind, item.payload, 0.0))[_LINEAGE_HEAD_BYTES:]


def _check_exports(plan: Plan, steps: list[int]) -> list[str]:
    """Each tensor is a file of its own, and no half one is left."""
    if not plan.export:
        return []
    expected = {f"{item.tag.replace('/', '%2F')}_{step}.npy": item for step in steps for item in _tensors(plan, step)}
    found = {path.name: path for path in Path(plan.directory).glob("export_*/tensor/*")}
    complaints = [f"exported: {name}" for name in sorted(expected.keys() ^ found.keys())[:5]]
    for name in expected.keys() & found.keys():
        array: Any = expected[name].payload
        if np.load(found[name]).tobytes() != array.tobytes():
            complaints.append(f"{name} differs from what was recorded")
    return complaints


def _tensors(plan: Plan, step: int) -> list[Any]:
    return [item for item in plan.event(step).items if item.kind == "tensor"]
