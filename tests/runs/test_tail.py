"""Following runs that are being recorded. Nothing here sleeps: the writer does its next step when the reader waits."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import read
from instrument.runs.run import Run, read_run
from instrument.runs.tail import Point
from tests.runs.build import SECONDS, encoded, item, steps, write

FRAMES = encoded(steps("scalar", "x", range(100), 0.5, start=1000.0))
NAME = f"events.out.events.summary.{SECONDS}.0.host_MS"


def script(*actions: Callable[[], object]) -> Callable[[], bool]:
    """A `wait` that does one thing each time it is called, and ends the iteration behind the last."""
    left = list(actions)

    def wait() -> bool:
        if not left:
            return False
        left.pop(0)()
        return True

    return wait


def appended(path: Path, data: bytes) -> Callable[[], object]:
    def append() -> None:
        with open(path, "ab") as file:
            file.write(data)

    return append


def followed(run: Run, *actions: Callable[[], object]) -> list[int]:
    return [point.step for point in run.follow(wait=script(*actions))]


def test_points_come_as_the_file_grows(tmp_path: Path) -> None:
    """First what is there, then each point once, with its value, its time and its writer."""
    path = tmp_path / NAME
    path.write_bytes(b"".join(FRAMES[:3]))

    points = list(read(tmp_path).follow(wait=script(appended(path, FRAMES[3]), appended(path, FRAMES[4] + FRAMES[5]))))

    assert [point.step for point in points] == [0, 1, 2, 3, 4]
    assert points[4] == Point("scalar", "x", 4, 1004.0, 0.5, 0, "host")


@pytest.mark.parametrize("cut", [1, 8, 11, 12, 13, 30])
def test_a_partial_frame_is_waited_for(tmp_path: Path, cut: int) -> None:
    """Reading goes on at the start of the frame, not at its missing part."""
    path = tmp_path / NAME
    path.write_bytes(b"".join(FRAMES[:3]) + FRAMES[3][:cut])
    assert followed(read(tmp_path), appended(path, FRAMES[3][cut:] + FRAMES[4])) == [0, 1, 2, 3]


@pytest.mark.parametrize("shown", [0, 5, 12, 30])
@pytest.mark.parametrize("zeros", [16, 512, 5000])
def test_zeros_at_the_end_may_become_frames(tmp_path: Path, shown: int, zeros: int) -> None:
    """D-53: a network file system shows zeros where frames will be; the same run recovers."""
    path = tmp_path / NAME
    start = sum(map(len, FRAMES[:50])) + shown
    whole = b"".join(FRAMES)
    path.write_bytes(whole[:start] + bytes(zeros))
    run = read(tmp_path, follow=True)
    assert len(run.scalars("x")) == 49
    assert run.damage
    path.write_bytes(whole)
    assert len(run.scalars("x")) == 100
    assert run.damage == []


def test_zeros_in_the_middle_may_become_frames(tmp_path: Path) -> None:
    """The same where later parts are shown already; meanwhile the place is told."""
    path = tmp_path / NAME
    start, end = sum(map(len, FRAMES[:40])), sum(map(len, FRAMES[:60]))
    whole = b"".join(FRAMES)
    path.write_bytes(whole[:start] + bytes(end - start) + whole[end:])
    run = read(tmp_path, follow=True)
    assert len(run.scalars("x")) == 80
    assert [(one.offset, one.bytes_skipped) for one in run.damage] == [(start, end - start)]
    with open(path, "r+b") as file:
        file.write(whole)
    assert run.scalars("x").step.tolist() == list(range(100))
    assert run.damage == []


def test_new_files_are_found_and_rotated_ones_kept(tmp_path: Path) -> None:
    """A restart's file, a second writer's and the rotation of one file to the next are all followed."""
    first = write(tmp_path, steps("scalar", "x", range(3), 1.0, start=1000.0))
    more = encoded(steps("scalar", "x", [3], 1.0, start=1003.0))[1]
    actions = [
        lambda: write(tmp_path, steps("scalar", "x", range(2, 4), 2.0, start=2000.0), seconds=SECONDS + 9),
        lambda: write(tmp_path, steps("scalar", "x", [7], 3.0, start=1500.0), device=1),
        appended(first, more),
    ]
    run = read(tmp_path)
    assert followed(run, *actions) == [0, 1, 2, 2, 3, 7, 3]
    assert run.contents.files[0].frames == 5
    assert run.scalars("x").by_writer()[0, "host"].value.tolist() == [1.0, 1.0, 2.0, 2.0]


def test_a_file_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    """Its points leave the run; the others stay."""
    first = write(tmp_path, steps("scalar", "x", range(3), 1.0, start=1000.0))
    write(tmp_path, steps("scalar", "x", range(5, 7), 1.0, start=2000.0), seconds=SECONDS + 9)
    run = read(tmp_path, follow=True)
    assert run.scalars("x").step.tolist() == [0, 1, 2, 5, 6]
    first.unlink()
    assert run.scalars("x").step.tolist() == [5, 6]
    shutil.rmtree(tmp_path)
    assert run.tags() == {}


@pytest.mark.parametrize("is_new_inode", [True, False])
def test_a_file_that_was_replaced_is_read_anew(tmp_path: Path, is_new_inode: bool) -> None:
    """By another file of its name, or cut back and written again."""
    path = write(tmp_path, steps("scalar", "x", range(5), 1.0, start=1000.0))
    run = read(tmp_path, follow=True)
    assert len(run.scalars("x")) == 5
    if is_new_inode:
        other = write(tmp_path / "other", steps("scalar", "x", range(20, 40), 2.0, start=1000.0))
        os.replace(other, path)
        assert run.scalars("x").step.tolist() == list(range(20, 40))
    else:
        write(tmp_path, steps("scalar", "x", [9], 2.0, start=1000.0))
        assert run.scalars("x").step.tolist() == [9]


def test_a_run_may_come_later(tmp_path: Path) -> None:
    """D-62: a directory that is empty, or not there yet, is followed until there is something."""
    run = read(tmp_path / "later", follow=True)
    assert run.tags() == {}
    write(tmp_path / "later", steps("scalar", "x", [4], 1.0, start=1000.0))
    assert run.tags() == {"scalar": ["x"]}
    assert run.scalars("x").step.tolist() == [4]


def test_a_single_file_is_followed(tmp_path: Path) -> None:
    """A file that is given by its path grows; its neighbours are none of its business."""
    path = write(tmp_path, steps("scalar", "x", range(2), 1.0, start=1000.0))
    write(tmp_path, steps("scalar", "x", [50], 1.0, start=1000.0), device=1)
    more = encoded(steps("scalar", "x", [2], 1.0, start=1002.0))[1]
    assert followed(read(path), appended(path, more)) == [0, 1, 2]


def test_values_of_all_kinds_come_decoded(tmp_path: Path) -> None:
    """An array comes as the value that its series would give."""
    kinds = ["scalar", "tensor", "histogram", "image"]
    path = tmp_path / NAME
    path.write_bytes(FRAMES[0])
    frames = [encoded(steps(kind, kind, [3], 2.0, start=5.0))[1] for kind in kinds]
    points = list(read(tmp_path).follow(wait=script(appended(path, b"".join(frames)))))
    assert sorted(point.kind for point in points) == sorted(kinds)
    (tensor,) = (point.value for point in points if point.kind == "tensor")
    assert tensor.array.tolist() == [2.0] * 4


def test_what_was_followed_equals_what_is_opened_afresh(tmp_path: Path, rng: np.random.Generator) -> None:
    """Whatever happens to the files of a run, and however much of it at a time."""
    run = read_run(tmp_path, follow=True)
    for _ in range(60):
        _happen(tmp_path, rng)
        assert _facts(run) == _facts(read_run(tmp_path, follow=True))


def _happen(folder: Path, rng: np.random.Generator) -> None:
    files = sorted(folder.iterdir())
    action = rng.integers(8)
    if action == 0 or not files:
        write(folder, steps("scalar", "x", range(3), 1.0, start=1000.0), seconds=SECONDS + int(rng.integers(5)))
        return
    path = files[int(rng.integers(len(files)))]
    if action == 1 and len(files) > 3:
        path.unlink()
    elif action == 2:
        os.truncate(path, int(rng.integers(path.stat().st_size + 1)))
    else:
        data = b"".join(FRAMES[int(rng.integers(1, 100))] for _ in range(int(rng.integers(1, 30))))
        appended(path, data[: int(rng.integers(len(data) + 1))])()


def _facts(run: Run) -> Any:
    points = {tag: list(_rows(run, tag)) for tag in run.tags().get("scalar", [])}
    return points, [(one.path, one.offset, one.bytes_skipped, one.reason) for one in run.damage]


def _rows(run: Run, tag: str) -> Iterator[tuple[Any, ...]]:
    points = run.scalars(tag, superseded=True)
    yield from zip(points.step.tolist(), points.value.tolist(), points.superseded.tolist(), points.writer, strict=True)


def test_items_are_built(tmp_path: Path) -> None:
    """An event of several values is one poll's worth of points."""
    events = steps("scalar", "x", [1], 1.0, start=5.0)
    events[0] = events[0]._replace(scalars={"a": 1.0, "b": 2.0}, items=(item("tensor", "c", 3.0),))
    write(tmp_path, events)
    assert sorted(point.tag for point in read(tmp_path).follow(wait=script())) == ["a", "b", "c"]
