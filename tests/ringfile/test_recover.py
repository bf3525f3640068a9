"""Rings without living processes: what they hold gets into the event files exactly once, and nothing else does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import read
from instrument.codec.dialects import LAYOUTS
from instrument.errors import CorruptMessage
from instrument.eventfile import frame
from instrument.eventfile.blocks import EventFileReader
from instrument.events import ArrayItem, Event
from instrument.ringfile import control, header, locks, recover, snapshot
from instrument.ringfile.replay import replay
from instrument.ringfile.unpack import unpack
from tests.ringfile.build import FILES, Recorder, contents, expected, lineage, scalar

DIALECTS = sorted(LAYOUTS)


def mixed(step: int) -> Event:
    """Something for each file of each dialect."""
    items = [
        *lineage(step).items,
        ArrayItem("tensor", "weight", np.full(50, step, np.float64), "float64"),
        ArrayItem("histogram", "h", np.arange(20, dtype=np.float32)),
        ArrayItem("image", "i", np.full((1, 3, 4, 4), 0.5, np.float32)),
    ]
    return Event(step, 1_700_000_000.0 + step, items, {"loss": step / 3, "accuracy": float(step)})


def shown(path: str) -> dict[str, bytes]:
    """The event files of a ring's directory with their tails, as a reader is to see them."""
    taken = snapshot.take(path)
    assert taken is not None
    result = {}
    for tail in replay(taken).tails:
        kept = Path(tail.path).read_bytes()[: tail.kept_bytes] if os.path.exists(tail.path) else b""
        result[os.path.basename(tail.path)] = kept + tail.data
    return result


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("committed", [0, 1, 4, 7])
def test_files_become_what_a_worker_would_have_made(tmp_path: Path, dialect: str, committed: int) -> None:
    """Whatever share was committed, shown and recovered files have every byte that a worker writes; no ring is left."""
    events = [mixed(step) if step % 3 else scalar(step) for step in range(7)]
    whole = expected(tmp_path / "expected", events, dialect)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", dialect)
    recorder.put(*events)
    recorder.commit(committed)
    path = recorder.kill()
    before = contents(tmp_path / "run")
    assert shown(path) == shown(path) == whole
    assert contents(tmp_path / "run") == before
    (result,) = recover.recover_all(str(tmp_path / "run"))
    assert (result.events, result.problem, result.damage) == (7 - committed, "", ())
    assert contents(tmp_path / "run") == whole
    assert recover.recover_all(str(tmp_path / "run")) == []


def test_a_ring_that_is_in_use(tmp_path: Path) -> None:
    """As long as somebody holds a ring file it is neither shown nor recovered."""
    recorder = Recorder(tmp_path)
    recorder.put(scalar(1))
    before = contents(tmp_path)
    assert snapshot.take(recorder.path) is None
    assert recover.recover_all(str(tmp_path), is_asked=True) == []
    assert contents(tmp_path) == before
    recorder.kill()
    (result,) = recover.recover_all(str(tmp_path))
    assert result.events == 1


def test_a_write_that_was_under_way(tmp_path: Path) -> None:
    """What stands behind the committed length is cut off, and comes once from the ring."""
    events = [scalar(step) for step in range(5)]
    whole = expected(tmp_path / "expected", events)
    for count in (1, 10, 60, 500):
        run = tmp_path / f"run{count}"
        run.mkdir()
        recorder = Recorder(run)
        recorder.put(*events)
        recorder.commit(2)
        path = recorder.kill()
        with open(run / FILES["summary"], "ab") as file:
            file.write(os.urandom(count))
        assert shown(path) == whole
        recover.recover_all(str(run))
        assert contents(run) == whole


@pytest.mark.parametrize(("dialect", "role"), [("mindspore", "summary"), ("both", "others"), ("tensorboard", "others")])
def test_half_a_frame_of_an_event_that_was_never_published(tmp_path: Path, dialect: str, role: str) -> None:
    """A trainer that writes a large event itself was killed in it: readers do not see it, and recovery cuts it off."""
    run = tmp_path / "run"
    run.mkdir()
    recorder = Recorder(run, dialect)
    recorder.put(scalar(0), scalar(1))
    recorder.commit(2)
    whole = contents(run)
    path = recorder.kill()
    del whole[os.path.basename(path)]
    with open(run / FILES[role], "ab") as file:
        file.write(os.urandom(5000))
    assert shown(path) == whole
    read_back = read(str(run))
    assert read_back.scalars("loss").step.tolist() == [0, 1]
    assert read_back.damage == []
    (result,) = recover.recover_all(str(run))
    assert (result.events, result.problem) == (0, "")
    assert contents(run) == whole


def test_recovery_that_is_cut_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recovery that ends at any moment leaves the ring file, and the next one makes the same of it."""
    events = [mixed(step) for step in range(4)]
    whole = expected(tmp_path / "expected", events, "both")
    calls: list[str] = []
    stop = 0

    def interrupted(name: str) -> Any:
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == stop:
                raise KeyboardInterrupt
            return original(*arguments, **options)

        return call

    for name in ("pwritev", "ftruncate", "fsync", "unlink", "pwrite", "open"):
        monkeypatch.setattr(os, name, interrupted(name))
    for attempt in range(1, 100):
        run = tmp_path / f"run{attempt}"
        run.mkdir()
        recorder = Recorder(run, "both")
        recorder.put(*events)
        recorder.commit(1)
        path = recorder.kill()
        calls.clear()
        stop = attempt
        try:
            recover.recover(path)
        except KeyboardInterrupt:
            stop = 0
            assert shown(path) == whole
            recover.recover(path)
        else:
            assert attempt > 12
            break
        assert contents(run) == whole


@pytest.mark.parametrize("is_asked", [False, True])
def test_a_ring_at_which_processes_die(tmp_path: Path, is_asked: bool) -> None:
    """After five attempts of recorders that did not end, only who asks for it recovers a ring."""
    recorder = Recorder(tmp_path)
    recorder.put(scalar(1))
    recorder.control.words[control.ATTEMPTS] = 5
    recorder.kill()
    (result,) = recover.recover_all(str(tmp_path), is_asked=is_asked)
    assert result.problem == ("" if is_asked else "5 attempts were cut short")
    assert os.path.exists(result.path) is not is_asked


def test_a_full_disk(tmp_path: Path, small_disk_of: Any) -> None:
    """Where the tail does not fit, the files end where they did and the ring stays; later all of it is there."""
    folder = small_disk_of("400k")
    events = [
        Event(step, 1.0, (ArrayItem("tensor", "t", np.full(2000, step, np.float32), "float32"),)) for step in range(6)
    ]
    recorder = Recorder(folder)
    recorder.put(*events)
    recorder.commit(1)
    path = recorder.kill()
    whole = shown(path)
    filler = folder / "filler"
    filler.write_bytes(bytes(os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize - 8192))
    before = os.path.getsize(folder / FILES["summary"])
    (result,) = recover.recover_all(str(folder))
    assert result.problem == "No space left on device"
    assert os.path.getsize(folder / FILES["summary"]) == before
    assert shown(path) == whole
    filler.unlink()
    (result,) = recover.recover_all(str(folder))
    assert result.events == 5
    assert contents(folder) == whole


def test_several_rings(tmp_path: Path) -> None:
    """Events of several workers' rings come in the order in which they were recorded."""
    events = [scalar(step) for step in range(20)]
    whole = expected(tmp_path / "expected", events)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", rings=3)
    for index, event in enumerate(events):
        recorder.put(event, ring=index * 7 % 3)
    recorder.commit(6, releases=False)
    recorder.kill()
    recover.recover_all(str(tmp_path / "run"))
    assert contents(tmp_path / "run") == whole


def test_a_ring_that_went_round(tmp_path: Path) -> None:
    """Records across the ring's end, and behind padding, are read as they are anywhere else."""
    events = [scalar(step, tag="t" * (step % 50 + 1)) for step in range(800)]
    whole = expected(tmp_path / "expected", events, ring_bytes=1 << 20)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run")
    recorder.put(*events[:200])
    recorder.commit(200)
    recorder.pad()
    recorder.put(*events[200:500])
    recorder.commit(300)
    recorder.put(*events[500:800])
    path = recorder.kill()
    assert snapshot.take(path).damage == []  # type: ignore[union-attr]
    recover.recover_all(str(tmp_path / "run"))
    assert contents(tmp_path / "run") == whole


def test_the_size_limit(tmp_path: Path) -> None:
    """A file at its size limit takes no more than a worker would have put into it."""
    events = [scalar(step) for step in range(50)]
    whole = expected(tmp_path / "expected", events, max_file_bytes=1000)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", max_file_bytes=1000)
    recorder.put(*events)
    recorder.commit(5)
    recorder.kill()
    (result,) = recover.recover_all(str(tmp_path / "run"))
    assert contents(tmp_path / "run") == whole
    assert result.events + result.refused == 45
    assert result.refused > 0


def test_an_event_that_cannot_be_encoded(tmp_path: Path) -> None:
    """One event's fault leaves a gap at its place, as in a worker, and costs no other event."""
    bad = Event(2, 2.0, (ArrayItem("image", "i", np.zeros((1, 7, 0), np.uint8)),))
    recorder = Recorder(tmp_path)
    recorder.put(scalar(1), bad, scalar(3))
    recorder.kill()
    (result,) = recover.recover_all(str(tmp_path))
    assert (result.events, result.lost) == (2, 1)
    assert len(list(EventFileReader(str(tmp_path / FILES["summary"])))) == 4


def test_event_files_that_are_gone(tmp_path: Path) -> None:
    """A file that was deleted, or its directory's, is made again with what the ring has, from its first frame on."""
    recorder = Recorder(tmp_path)
    recorder.put(*(scalar(step) for step in range(4)))
    recorder.commit(2)
    recorder.kill()
    (tmp_path / FILES["summary"]).unlink()
    (result,) = recover.recover_all(str(tmp_path))
    assert result.events == 2
    assert len(list(EventFileReader(str(tmp_path / FILES["summary"])))) == 3


def test_tensors_are_exported(tmp_path: Path) -> None:
    """What a recorder exports is handed on with the ring's header, once for each event that no worker took."""
    recorder = Recorder(tmp_path, export_directory="export_17")
    recorder.put(*(mixed(step) for step in range(3)))
    recorder.commit(1)
    recorder.kill()
    seen = []
    recover.recover_all(str(tmp_path), lambda event, made: seen.append((event.step, made.export_directory)))
    assert seen == [(1, "export_17"), (2, "export_17")]


def test_a_ring_that_was_never_used(tmp_path: Path) -> None:
    """A recorder that ended before its first event, or while it made its ring, leaves nothing but its event file."""
    recorder = Recorder(tmp_path)
    recorder.kill()
    second = Recorder(tmp_path)
    second.control.words[control.VERSION] = 0
    second.kill()
    partial = tmp_path / (header.file_name(9) + header.PART_SUFFIX)
    partial.write_bytes(b"")
    before = (tmp_path / FILES["summary"]).read_bytes()
    results = recover.recover_all(str(tmp_path))
    assert [(result.events, result.problem) for result in results] == [(0, "")] * 2
    assert contents(tmp_path) == {FILES["summary"]: before, FILES["lineage"]: b""}


# ---------------------------------------------------------------------- damage


def damaged(tmp_path: Path, **options: Any) -> tuple[Recorder, list[int]]:
    """A recorder with ten events in its ring, and where their records begin in the ring file."""
    recorder = Recorder(tmp_path, **options)
    places = []
    for step in range(1, 11):
        places.append(recorder.header.data_at + recorder._positions[0])
        recorder.put(Event(step, float(step), (ArrayItem("tensor", "t", np.full(9, step, np.float32), "float32"),)))
    return recorder, places


def steps(tmp_path: Path) -> list[int]:
    from instrument.codec import outline

    reader = EventFileReader(str(tmp_path / FILES["summary"]))
    return [one.step for payload in reader for one in outline.records(payload) if one.kind != "gap"]


def gaps(tmp_path: Path) -> list[tuple[int, int]]:
    from instrument.codec import outline

    reader = EventFileReader(str(tmp_path / FILES["summary"]))
    return [(one.value.events, one.step) for payload in reader for one in outline.records(payload) if one.kind == "gap"]


@pytest.mark.parametrize("offset", [0, 3, 9, 17, 24, 29, 33, 64, 90, 128, 150])
def test_a_damaged_record_in_the_middle(tmp_path: Path, offset: int) -> None:
    """It is reported with its place and leaves a gap in the file; those before and behind it are used."""
    recorder, places = damaged(tmp_path)
    recorder.memory[places[4] + offset] ^= 0x40
    path = recorder.kill()
    taken = snapshot.take(path)
    assert taken is not None
    assert [(one.path, one.offset, one.torn) for one in taken.damage] == [(path, places[4], False)]
    assert taken.damage[0].bytes_skipped == places[5] - places[4]
    (result,) = recover.recover_all(str(tmp_path))
    assert result.damage == (taken.damage[0].reason,)
    assert (result.events, result.lost) == (9, 1)
    assert steps(tmp_path) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert gaps(tmp_path) == [(1, 6)]


def test_a_damaged_last_record(tmp_path: Path) -> None:
    """The last record, when it is torn, is reported and dropped."""
    recorder, places = damaged(tmp_path)
    recorder.memory[places[9] + 70] ^= 0x40
    path = recorder.kill()
    assert [one.torn for one in snapshot.take(path).damage] == [True]  # type: ignore[union-attr]
    recover.recover_all(str(tmp_path))
    assert steps(tmp_path) == list(range(1, 10))


def test_any_flipped_byte(tmp_path: Path, rng: np.random.Generator) -> None:
    """A byte that is flipped anywhere in a ring costs one event at most, and never makes another of it."""
    recorder, places = damaged(tmp_path)
    good = bytes(recorder.memory)
    path = recorder.kill()
    end = places[9] + (places[9] - places[8])
    for place in rng.choice(np.arange(places[0], end), 300, replace=False).tolist():
        data = bytearray(good)
        data[place] ^= int(rng.integers(1, 256))
        Path(path).write_bytes(data)
        taken = snapshot.take(path)
        assert taken is not None
        unpacked = [unpack(one.payload, one.head_offset).step for one in taken.records]
        assert len(unpacked) >= 9
        assert unpacked == [one.sequence for one in taken.records]


def test_a_damaged_state(tmp_path: Path) -> None:
    """Without a state that can be believed nothing is appended, cut or removed."""
    recorder, _ = damaged(tmp_path)
    recorder.control.words[24] ^= 1
    path = recorder.kill()
    before = contents(tmp_path)
    with pytest.raises(CorruptMessage, match="committed state"):
        snapshot.take(path)
    (result,) = recover.recover_all(str(tmp_path), is_asked=True)
    assert "committed state" in result.problem
    assert contents(tmp_path) == before


def test_a_later_version(tmp_path: Path) -> None:
    """A ring of a later release is reported and left alone."""
    recorder, _ = damaged(tmp_path)
    recorder.memory[8] = 9
    recorder.kill()
    before = contents(tmp_path)
    (result,) = recover.recover_all(str(tmp_path), is_asked=True)
    assert "version 9" in result.problem
    assert contents(tmp_path) == before


def test_a_ring_file_that_was_cut(tmp_path: Path) -> None:
    """Cut anywhere it is reported, what stands before the cut is used, and nothing is read behind it."""
    recorder, places = damaged(tmp_path)
    good = bytes(recorder.memory)
    path = recorder.kill()
    counts = []
    for end in (0, 100, 2048, 4095, 4096, 8000, places[0], places[3] + 10, places[9] + 50, len(good)):
        Path(path).write_bytes(good[:end])
        try:
            taken = snapshot.take(path)
        except CorruptMessage:
            counts.append(-1)
            continue
        assert taken is not None
        assert bool(taken.damage) == (end < len(good))
        counts.append(len(taken.records))
    assert counts == [-1, -1, -1, -1, -1, -1, 0, 3, 9, 10]


def test_hostile_words(tmp_path: Path) -> None:
    """Any head and tail are bounded by the ring's size; nothing is read that is not there."""
    recorder, _ = damaged(tmp_path)
    good = bytes(recorder.memory)
    path = recorder.kill()
    numbers = (0, 1, 64, 1 << 16, (1 << 16) + 64, 1 << 40, 1 << 63, (1 << 64) - 64, (1 << 64) - 1)
    for tail in numbers:
        for head in numbers:
            data = bytearray(good)
            for word, number in ((control.TAIL, tail), (control.HEAD, head)):
                at = header.CONTROL_AT + 8 * control.word_of(0, word)
                data[at : at + 8] = number.to_bytes(8, "little")
            Path(path).write_bytes(data)
            try:
                taken = snapshot.take(path)
            except CorruptMessage:
                continue
            assert taken is not None
            assert len(taken.records) <= 10


def test_random_rings(tmp_path: Path, rng: np.random.Generator) -> None:
    """A ring of random bytes with whole control words takes a bounded time and yields nothing."""
    recorder, _ = damaged(tmp_path, ring_bytes=1 << 22)
    recorder.control.words[control.word_of(0, control.HEAD)] = 1 << 22
    start = recorder.header.data_at
    noise = rng.integers(0, 256, 1 << 22, np.uint8)
    noise[24::64], noise[25::64], noise[26::64], noise[27::64] = 1, 0, 0, 0  # each place looks like a record
    noise[36::64], noise[37::64], noise[38::64], noise[39::64] = 1, 0, 0, 0
    noise[2::64], noise[3::64], noise[4::64], noise[5::64], noise[6::64], noise[7::64] = 1, 0, 0, 0, 0, 0
    noise[16::64] = noise[17::64] = noise[18::64] = noise[19::64] = noise[20::64] = noise[21::64] = 0
    noise[22::64] = noise[23::64] = 0
    recorder.memory[start : start + (1 << 22)] = noise.tobytes()
    taken = snapshot.take(recorder.kill())
    assert taken is not None
    assert taken.records == []
    assert len(taken.damage) == 1


def test_a_directory_or_a_pipe_in_its_place(tmp_path: Path) -> None:
    """What only has the name of a ring file is reported and never waited for."""
    os.mkfifo(tmp_path / header.file_name(0))
    (tmp_path / header.file_name(1)).mkdir()
    (tmp_path / header.file_name(2)).symlink_to("/etc/hostname")
    results = recover.recover_all(str(tmp_path), is_asked=True)
    assert len(results) == 3
    assert all(result.problem for result in results)
    with pytest.raises(CorruptMessage):
        snapshot.take(str(tmp_path / header.file_name(0)))


# ---------------------------------------------------------------------- after a crash of the machine


def test_records_without_a_checksum(tmp_path: Path) -> None:
    """They count as long as the machine runs on, and are reported when it was started anew since."""
    for boot_id, count in ((locks.boot_id(), 2), (bytes(range(16)), 1)):
        run = tmp_path / boot_id.hex()
        run.mkdir()
        recorder = Recorder(run, boot_id=boot_id)
        recorder.put(scalar(1))
        recorder.put(mixed(2), sealed=False)
        taken = snapshot.take(recorder.kill())
        assert taken is not None
        assert len(taken.records) == count
        assert [one.reason for one in taken.damage] == ["a record's body had no checksum yet when the machine stopped"][
            : 2 - count
        ]


@pytest.mark.parametrize("in_file", range(9))
def test_a_file_that_is_newer_than_the_state(tmp_path: Path, in_file: int) -> None:
    """After a crash of the machine, frames behind the committed length stay, and what the file holds comes once."""
    events = [scalar(step) for step in range(8)]
    whole = expected(tmp_path / "expected", events)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", boot_id=bytes(range(16)))
    recorder.put(*events)
    recorder.commit(3, releases=False)
    state = recorder.control.state
    recorder.commit(max(in_file - 3, 0), releases=False)
    recorder.control.state = state
    path = recorder.kill()
    with open(tmp_path / "run" / FILES["summary"], "ab") as file:
        file.write(b"\0" * 100)
    assert shown(path) == whole
    recover.recover_all(str(tmp_path / "run"))
    assert contents(tmp_path / "run") == whole


def test_valid_frames_behind_a_hole(tmp_path: Path) -> None:
    """After a crash of the machine, frames behind bytes that never came to the disk stay as well."""
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", boot_id=bytes(range(16)))
    recorder.put(*(scalar(step) for step in range(8)))
    state = recorder.control.state
    recorder.commit(8, releases=False)
    recorder.control.state = state
    recorder.kill()
    path = tmp_path / "run" / FILES["summary"]
    data = bytearray(path.read_bytes())
    data[200:300] = bytes(100)
    path.write_bytes(data)
    recover.recover_all(str(tmp_path / "run"))
    assert path.read_bytes()[: len(data)] == data
    assert sorted(steps(tmp_path / "run")) == list(range(8))


def test_frames_that_the_ring_has_lost(tmp_path: Path) -> None:
    """After a crash of the machine a file keeps its frames, though the ring's pages never came to the disk."""
    events = [scalar(step) for step in range(8)]
    whole = expected(tmp_path / "expected", events)
    (tmp_path / "run").mkdir()
    recorder = Recorder(tmp_path / "run", boot_id=bytes(range(16)))
    recorder.put(*events)
    state = recorder.control.state
    recorder.commit(8, releases=False)
    recorder.control.state = state
    start = recorder.header.data_at
    recorder.memory[start : start + 4096] = bytes(4096)
    recorder.kill()
    (result,) = recover.recover_all(str(tmp_path / "run"))
    assert contents(tmp_path / "run") == whole
    assert result.damage


# ---------------------------------------------------------------------- other machines, no locks


def test_another_machine(tmp_path: Path) -> None:
    """A ring of another host that was changed just now is left to who asks; an older one is recovered."""
    for age, is_asked, left in ((0, False, True), (100, False, False), (0, True, False)):
        run = tmp_path / f"{age}{is_asked}"
        run.mkdir()
        recorder = Recorder(run, host="elsewhere")
        recorder.put(scalar(1))
        path = recorder.kill()
        status = os.stat(path)
        os.utime(path, (status.st_atime - age, status.st_mtime - age))
        (result,) = recover.recover_all(str(run), is_asked=is_asked)
        assert bool(result.problem) == os.path.exists(path) == left


def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(locks.fcntl, "fcntl", refuse)


def test_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, processes of this machine count by number and start; of other hosts only who asks."""
    no_locks(monkeypatch)
    recorder = Recorder(tmp_path)
    recorder.put(scalar(1))
    recorder.kill()  # but this process, which the header names, lives
    assert recover.recover_all(str(tmp_path), is_asked=True) == []
    for name, changed, left in (
        ("another start", {"start_ticks": 1}, False),
        ("another boot", {"boot_id": bytes(range(16))}, False),
        ("another host", {"host": "elsewhere", "boot_id": bytes(range(16))}, True),
    ):
        run = tmp_path / name
        run.mkdir()
        recorder = Recorder(run, **changed)  # type: ignore[arg-type]
        recorder.put(scalar(1))
        path = recorder.kill()
        os.utime(path, (0, 0))
        assert snapshot.take(path) is not None
        (result,) = recover.recover_all(str(run))
        assert bool(result.problem) == os.path.exists(path) == left
        if left:
            (result,) = recover.recover_all(str(run), is_asked=True)
            assert result.events == 1


def test_a_worker_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no locks, a worker that lives on is seen by its number in the control words."""
    no_locks(monkeypatch)
    recorder = Recorder(tmp_path, start_ticks=1)
    recorder.put(scalar(1))
    recorder.control.words[control.word_of(0, control.WORKER_PID)] = os.getpid()
    recorder.control.words[control.word_of(0, control.WORKER_START)] = locks.start_ticks(os.getpid())
    recorder.kill()
    assert recover.recover_all(str(tmp_path)) == []


def test_the_frames_are_valid(tmp_path: Path) -> None:
    """What is appended are whole frames: a strict reader finds no damage in the recovered file."""
    recorder = Recorder(tmp_path, "both")
    recorder.put(*(mixed(step) for step in range(3)))
    recorder.kill()
    recover.recover_all(str(tmp_path))
    for name in ("summary", "lineage", "scalars", "others"):
        data = (tmp_path / FILES[name]).read_bytes()
        offset = 0
        while offset < len(data):
            result = frame.unpack(data, offset)
            assert result is not None
            offset = result[1]
