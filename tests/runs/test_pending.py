"""Reading runs whose recorder was killed: what its ring buffer holds is there, and nothing on disk changes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec.dialects import LAYOUTS
from instrument.errors import NoSuchRun
from instrument.eventfile.access import OpenFile
from instrument.events import ArrayItem, Event
from instrument.ringfile import header, recover
from instrument.runs import verify
from instrument.runs.run import Run, find_runs, read_run
from tests.ringfile.build import FILES, Recorder, contents, lineage, scalar

DIALECTS = sorted(LAYOUTS)


def event(step: int) -> Event:
    items = [
        *lineage(step).items,
        ArrayItem("tensor", "weight", np.full(50, step, np.float32), "float32"),
        ArrayItem("image", "i", np.full((1, 3, 4, 4), 0.5, np.float32)),
    ]
    return Event(step, 1_700_000_000.0 + step, items, {"loss": step / 3})


def killed(directory: Path, dialect: str = "mindspore", count: int = 8, committed: int = 3) -> str:
    directory.mkdir(exist_ok=True)
    recorder = Recorder(directory, dialect)
    recorder.put(*(event(step) for step in range(count)))
    recorder.commit(committed)
    return recorder.kill()


def facts(run: Run) -> dict[str, Any]:
    tensors, images = run.tensors("weight"), run.images("i")
    return {
        "loss": run.scalars("loss").value.tolist(),
        "steps": run.scalars("loss").step.tolist(),
        "tensors": [tensors.decode(index).array.tolist() for index in range(len(tensors))],
        "images": [images.decode(index).data for index in range(len(images))],
        "tags": run.tags(),
        "damage": run.damage,
        "gaps": run.gaps,
        "lineage": dict(run.lineage),
    }


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("committed", [0, 3, 8])
def test_a_killed_run_is_read_whole(tmp_path: Path, dialect: str, committed: int) -> None:
    """Numbers, arrays, pictures and lineage out of the ring are as those out of files, before recovery and after."""
    killed(tmp_path, dialect, committed=committed)
    before = contents(tmp_path)
    run = read_run(tmp_path)
    shown = facts(run)
    assert shown["loss"] == [step / 3 for step in range(8)]
    assert shown["tensors"] == [[float(step)] * 50 for step in range(8)]
    assert shown["damage"] == []
    assert contents(tmp_path) == before
    late = read_run(tmp_path)
    images = late.images("i")
    recover.recover_all(str(tmp_path))
    assert facts(run) == shown  # opened before, lazy values read after
    assert [images.decode(index).width for index in range(8)] == [4] * 8
    assert facts(read_run(tmp_path)) == shown


def test_recovery_by_who_has_read_it(tmp_path: Path) -> None:
    """What is shown as the end of a file is not taken for its content by who appends it, in the same process."""
    recorder = Recorder(tmp_path, boot_id=bytes(range(16)))
    recorder.put(*(scalar(step) for step in range(8)))
    recorder.commit(3, releases=False)
    recorder.kill()
    assert len(read_run(tmp_path).scalars("loss")) == 8
    (result,) = recover.recover_all(str(tmp_path))
    assert result.events == 5
    assert len(read_run(tmp_path).scalars("loss")) == 8
    assert (tmp_path / FILES["summary"]).stat().st_size > 8 * 40


def test_a_single_file(tmp_path: Path) -> None:
    """An event file that is given by its path is read with the rings beside it; so does a path without a folder."""
    killed(tmp_path)
    path = tmp_path / FILES["summary"]
    assert len(read_run(path).scalars("loss")) == 8
    assert verify.check(verify.files_at(str(path))[0][0]).frames == 9


def test_a_tree_and_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a tree are read whole, also by relative paths and through links."""
    (tmp_path / "tree").mkdir()
    killed(tmp_path / "tree" / "a")
    killed(tmp_path / "tree" / "b")
    (tmp_path / "link").symlink_to(tmp_path / "tree" / "a")
    assert [len(run.scalars("loss")) for run in find_runs(tmp_path / "tree")] == [8, 8]
    assert len(read_run(tmp_path / "link").scalars("loss")) == 8
    monkeypatch.chdir(tmp_path / "tree" / "b")
    assert len(read_run(".").scalars("loss")) == 8
    assert len(read_run(FILES["summary"]).scalars("loss")) == 8


def test_following_through_death_and_recovery(tmp_path: Path) -> None:
    """Who follows a run sees each point once: while it lives, when it was killed, when it was recovered."""
    recorder = Recorder(tmp_path)
    recorder.put(*(scalar(step) for step in range(10)))
    recorder.commit(4)
    steps: list[int] = []
    stages = iter(
        [
            lambda: recorder.commit(2),
            recorder.kill,
            lambda: recover.recover_all(str(tmp_path)),
            lambda: None,
        ]
    )
    seen: list[int] = []

    def wait() -> bool:
        seen.append(len(steps))
        stage = next(stages, None)
        if stage is None:
            return False
        stage()
        return True

    for point in read_run(tmp_path, follow=True).follow(wait=wait):
        steps.append(point.step)
    assert steps == list(range(10))
    assert seen == [4, 6, 10, 10, 10]


def test_a_live_run_is_read_as_it_stands(tmp_path: Path) -> None:
    """What a living recorder holds is in its file in a moment; until then its ring is none of a reader's business."""
    recorder = Recorder(tmp_path)
    recorder.put(*(scalar(step) for step in range(10)))
    recorder.commit(4)
    assert len(read_run(tmp_path).scalars("loss")) == 4
    recorder.kill()


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """Reading needs no right to write: neither to the directory nor to the ring."""
    path = killed(tmp_path)
    for each in tmp_path.iterdir():
        each.chmod(0o444)
    tmp_path.chmod(0o555)
    assert os.stat(path).st_mode & 0o777 == 0o444
    assert len(read_run(tmp_path).scalars("loss")) == 8
    tmp_path.chmod(0o755)


def test_a_copy(tmp_path: Path) -> None:
    """A directory that was copied with its ring is read whole as well."""
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run")
    recorder.put(*(event(step) for step in range(6)))
    recorder.put(event(6), event(7), sealed=False)
    recorder.commit(3)
    recorder.kill()
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    shutil.rmtree(tmp_path / "run")
    assert facts(read_run(tmp_path / "copy"))["steps"] == list(range(8))


@pytest.mark.parametrize("newer", ["ring", "file"])
def test_a_copy_of_a_run_that_went_on(tmp_path: Path, newer: str) -> None:
    """Copied while it recorded, ring and file are of different moments: every event that either has is read once."""
    (tmp_path / "run").mkdir()
    (tmp_path / "copy").mkdir()
    recorder = Recorder(tmp_path / "run")
    names = [os.path.basename(recorder.path), FILES["summary"]]
    recorder.put(*(scalar(step) for step in range(4)))
    recorder.commit(2, releases=False)
    for name in names if newer == "file" else reversed(names):
        shutil.copy(tmp_path / "run" / name, tmp_path / "copy" / name)
        if recorder.sequence == 4:
            recorder.commit(2)
            recorder.put(*(scalar(step) for step in range(4, 9)))
            recorder.commit(3, releases=False)
    recorder.kill()
    expected = list(range(7)) if newer == "file" else [0, 1, *range(4, 9)]
    assert read_run(tmp_path / "copy").scalars("loss").step.tolist() == expected
    recover.recover_all(str(tmp_path / "copy"))
    run = read_run(tmp_path / "copy")
    assert run.scalars("loss").step.tolist() == expected
    assert run.damage == []


def test_a_ring_that_takes_the_place_of_another(tmp_path: Path) -> None:
    """A later recorder's ring of the same name is looked at for itself."""
    for count in (3, 5, 4):
        path = killed(tmp_path, count=count, committed=1)
        assert len(read_run(tmp_path).scalars("loss")) == count
        os.remove(path)
        assert len(read_run(tmp_path).scalars("loss")) == 1


def test_an_inode_that_is_used_again(tmp_path: Path) -> None:
    """What a ring holds for a file is never shown as the end of another file that has its inode now."""
    killed(tmp_path)
    path = tmp_path / FILES["summary"]
    good = path.read_bytes()
    assert len(read_run(tmp_path).scalars("loss")) == 8
    data = bytearray(good)
    data[20] ^= 1  # the time in the first event
    path.write_bytes(data)
    assert len(OpenFile(str(path)).read(0, 1 << 20)) == len(good)
    path.write_bytes(good)
    assert len(OpenFile(str(path)).read(0, 1 << 20)) > len(good)
    path.rename(tmp_path / "events.out.events.summary.1800000000.0.host_MS")
    assert len(OpenFile(str(tmp_path / "events.out.events.summary.1800000000.0.host_MS")).read(0, 1 << 20)) == len(good)


def test_damage_of_a_ring_is_damage_of_the_run(tmp_path: Path) -> None:
    """What cannot be used is listed with its place; of a later release, or beyond belief, the whole file."""
    path = killed(tmp_path)
    good = Path(path).read_bytes()
    data = bytearray(good)
    data[header.decode(good).data_at + 3 * 1024] ^= 1
    Path(path).write_bytes(data)
    (one,) = read_run(tmp_path).damage
    assert (one.path, one.torn) == (path, False)
    for position, reason in ((8, "version"), (0, "does not begin"), (40, "checksum of its header")):
        data = bytearray(good)
        data[position] ^= 0x40
        Path(path).write_bytes(data)
        run = read_run(tmp_path)
        assert len(run.scalars("loss")) == 3
        (one,) = run.damage
        assert (one.path, one.offset, one.bytes_skipped) == (path, 0, len(data))
        assert reason in one.reason


def test_an_event_file_that_is_gone(tmp_path: Path) -> None:
    """Events for a file that was deleted are told, and nothing is made of them but by recovery."""
    killed(tmp_path, "both")
    (tmp_path / FILES["lineage"]).unlink()
    run = read_run(tmp_path)
    assert len(run.scalars("loss")) == 8
    assert [FILES["lineage"] in one.reason for one in run.damage] == [True]
    recover.recover_all(str(tmp_path))
    assert read_run(tmp_path).damage == []
    assert read_run(tmp_path).lineage["custom"] == {"step": 7}


def test_a_ring_alone(tmp_path: Path) -> None:
    """A directory with nothing but a ring is no run for readers."""
    killed(tmp_path)
    for name in ("summary", "lineage"):
        (tmp_path / FILES[name]).unlink()
    with pytest.raises(NoSuchRun):
        read_run(tmp_path)
