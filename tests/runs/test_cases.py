"""What readers of other tools got wrong, each as one test; the number of its case stands in front."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import image
from instrument.runs.run import find_runs
from instrument.values import Event
from tests.runs.build import SECONDS, encoded, item, steps, write

TAGS = [
    "a b", "a:b", "a_b", "a/b", "/a/b", "a//b", "准确率", "loss %", "x" * 300, "a\nb", "..", "a\\b", "CON", "é",
    "e\u0301", "😀",
]  # fmt: skip


def test_d13_two_writers_are_kept_apart(tmp_path: Path) -> None:
    """Eight devices in one directory: every point is there, knows its writer, and the run says so."""
    for device in range(8):
        write(tmp_path, steps("scalar", "x", range(200), float(device), start=1000.0), device=device)
    run = read(tmp_path)
    scalars = run.scalars("x")
    assert len(scalars) == 1600
    assert len(scalars.writers) == 8
    for device in range(8):
        points = scalars.by_writer()[device, "host"]
        assert points.step.tolist() == list(range(200))
        assert set(points.value.tolist()) == {float(device)}
    assert "writers       8  rank 0 on host" in repr(run)
    assert "of 8 writers" in repr(scalars)


def test_d13_all_files_are_kept_up_to_date(tmp_path: Path) -> None:
    """Every file is followed, in whatever order they grow."""
    frames = encoded(steps("scalar", "x", range(30), 1.0, start=1000.0))
    paths = [tmp_path / f"events.out.events.summary.{SECONDS}.{device}.host_MS" for device in range(3)]
    for path in paths:
        path.write_bytes(frames[0])
    run = read(tmp_path, follow=True)
    for step in range(30):
        path = paths[(0, 1, 0, 2)[step % 4]]
        with open(path, "ab") as file:
            file.write(frames[step + 1])
        assert run.scalars("x").step.tolist() == list(range(step + 1))


@pytest.mark.parametrize("kind", ["scalar", "tensor", "histogram", "image"])
def test_d16_a_restart_continues_the_series(tmp_path: Path, kind: str) -> None:
    """Steps 0 to 150, then 100 to 200: each step once, the newer from 100 on, all 252 on demand."""
    write(tmp_path, steps(kind, "x", range(151), 1.0, start=1000.0))
    write(tmp_path, steps(kind, "x", range(100, 201), 2.0, start=2000.0), seconds=SECONDS + 500)
    run = read(tmp_path)
    assert run.points(kind, "x").step.tolist() == list(range(201))
    assert len(run.points(kind, "x", superseded=True)) == 252


def test_d21_numbers_that_are_none_are_numbers(tmp_path: Path) -> None:
    """NaN and the infinities come back as such, among a thousand others of the same shape."""
    values = [1.0, math.nan, math.inf, -math.inf, 2.0] * 200
    write(tmp_path, [Event.of(step, 1.0 + step, (item("scalar", "x", one),)) for step, one in enumerate(values)])
    np.testing.assert_array_equal(read(tmp_path).scalars("x").value, values)


def test_d28_tags_are_kept_as_they_are(tmp_path: Path) -> None:
    """Each tag reads back equal, with its own value."""
    events = [
        Event.of(step, 1.0, tuple(item("scalar", tag, float(number)) for number, tag in enumerate(TAGS)))
        for step in range(20)
    ]
    write(tmp_path, events)
    run = read(tmp_path)
    assert run.tags() == {"scalar": sorted(TAGS)}
    for number, tag in enumerate(TAGS):
        assert set(run.scalars(tag).value.tolist()) == {float(number)}


@pytest.mark.parametrize("name", ["a,b", "a b", "中文 run", "a#b?c=1", "a%2Fb", "a&b", "-x", "a+b", "q'uote", "a:b"])
def test_d29_any_folder_name_works(tmp_path: Path, name: str) -> None:
    """A run is found and read under any legal name of its folder."""
    write(tmp_path / name, steps("scalar", "x", [1], 1.0, start=1.0))
    (run,) = find_runs(tmp_path)
    assert run.name == name
    assert read(tmp_path / name).scalars("x")[1] == 1.0


@pytest.mark.parametrize("place", ["length", "payload"])
def test_d52_damage_in_the_middle_hides_nothing(tmp_path: Path, place: str) -> None:
    """99 of 100 frames, and the one that is not is named with file and offset; reading ends."""
    frames = encoded(steps("scalar", "x", range(100), 1.0, start=1000.0))
    start = sum(map(len, frames[:51]))
    data = bytearray(b"".join(frames))
    data[start + (2 if place == "length" else 20)] ^= 0x40
    path = tmp_path / f"events.out.events.summary.{SECONDS}.0.host_MS"
    path.write_bytes(data)
    run = read(tmp_path)
    assert len(run.scalars("x")) == 99
    assert [(one.path, one.offset) for one in run.damage] == [(str(path), start)]


def test_d54_links_are_followed_once(tmp_path: Path) -> None:
    """A linked run is found once, a cycle ends, a broken link is noted."""
    root = tmp_path / "root"
    write(tmp_path / "elsewhere", steps("scalar", "x", [1], 1.0, start=1.0))
    root.mkdir()
    os.symlink(tmp_path / "elsewhere", root / "named")
    os.symlink(tmp_path / "elsewhere", root / "other")
    os.symlink(root, root / "loop")
    os.symlink("/nonexistent", root / "broken")
    started = time.process_time()
    runs = find_runs(root)
    assert [run.name for run in runs] == ["named"]
    assert time.process_time() - started < 1
    assert runs.notes == [f"{root / 'broken'} is a broken link"]


def test_d55_a_folder_that_cannot_be_read_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others are listed, and it is noted; so is a name that is no text."""
    write(tmp_path / "ok", steps("scalar", "x", [1], 1.0, start=1.0))
    (tmp_path / "locked").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/weird\xff")).touch()
    real = os.scandir

    def refuse(path: str) -> object:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    runs = find_runs(tmp_path)
    assert [run.name for run in runs] == ["ok"]
    assert runs.notes == [f"{tmp_path / 'locked'} cannot be read: Permission denied"]


def test_d56_zero_is_a_value(tmp_path: Path) -> None:
    """Step 0, the number 0.0, a tensor of zeros, a black picture, device 0."""
    kinds = ("scalar", "tensor", "histogram", "image")
    write(tmp_path, [Event.of(0, 0.0, tuple(item(kind, kind, 0.0) for kind in kinds))])
    run = read(tmp_path)
    assert run.tags() == {kind: [kind] for kind in ("scalar", "image", "tensor", "histogram")}
    assert list(run.scalars("scalar")) == [(0, 0.0, 0.0)]
    assert run.tensors("tensor")[0].tolist() == [0.0] * 4
    assert not image.pixels(run.images("image")[0]).any()
    assert run.scalars("scalar").writer == [(0, "host")]


def test_d57_nothing_is_sampled(tmp_path: Path) -> None:
    """50,000 steps with one spike: all are there, the first, the last and the spike."""
    events = [
        Event.of(step, float(step), (item("scalar", "x", 9.0 if step == 31_337 else 1.0),)) for step in range(50_000)
    ]
    write(tmp_path, events)
    scalars = read(tmp_path).scalars("x")
    assert scalars.step.tolist() == list(range(50_000))
    assert np.flatnonzero(scalars.value == 9.0).tolist() == [31_337]
    within = (scalars.step >= 31_000) & (scalars.step < 32_000)
    assert int(within.sum()) == 1000


def test_d57_every_picture_can_be_had(tmp_path: Path) -> None:
    """100 pictures: the list of steps is whole, and any of them opens."""
    write(tmp_path, [Event.of(step, float(step), (item("image", "p", float(step)),)) for step in range(100)])
    images = read(tmp_path).images("p")
    assert images.step.tolist() == list(range(100))
    assert [int(images.pixels(step)[0, 0, 0]) for step in (0, 57, 99)] == [0, 57, 99]


def test_d62_root_run_and_file_all_work(tmp_path: Path) -> None:
    """The parent gives its runs, the run itself and its file give the run."""
    path = write(tmp_path / "run", steps("scalar", "x", [1], 1.0, start=1.0))
    (from_root,) = read(tmp_path)
    for run in (from_root, read(tmp_path / "run"), read(path)):
        assert run.scalars("x")[1] == 1.0
