"""Committing: events go into their files in order and whole, and what cannot be written costs no other event."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import outline, wire
from instrument.codec.dialects import LAYOUTS
from instrument.codec.lineage import custom_message
from instrument.eventfile.blocks import EventFileReader
from instrument.ringfile import commit
from instrument.ringfile.commit import LINEAGE, SUMMARY, Committer, Diagnostic, Job
from instrument.ringfile.control import State
from instrument.values import AnyItem, ArrayItem, Event, Gap, MessageItem, ScalarItem
from instrument.write.limits import item_bound_bytes, upper_bound_bytes
from instrument.write.npy_export import export_tensors
from tests.write.build import both, custom, frame_count, gaps, numbers, scalar, tensor

needs_pwritev = pytest.mark.skipif(not hasattr(os, "pwritev"), reason="this system has no pwritev to stand in for")


class Desk:
    """A committer with its two files in a directory, and what it reported."""

    def __init__(self, directory: Path, max_file_bytes: int | None = None) -> None:
        self.paths = (str(directory / "summary"), str(directory / "lineage"))
        self.notices: list[Diagnostic] = []
        self.state = State()
        self.committer = Committer(max_file_bytes, self.notices.append)

    def job(self, event: Event, ahead: int = 1) -> Job:
        return commit.encode(self.state.sequence + ahead, event, self.paths, self.notices.append)

    def apply(self, *events: Event) -> State:
        jobs = [self.job(event, ahead) for ahead, event in enumerate(events, 1)]
        self.state = self.committer.apply(self.state, jobs)
        return self.state

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(os.path.getsize(path) if os.path.exists(path) else 0 for path in self.paths)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def size(event: Event) -> tuple[int, int]:
    """The bytes that an event takes in the two files."""
    job = commit.encode(1, event, ("", ""), lambda notice: None)
    return wire.size(job.frames[SUMMARY]), wire.size(job.frames[LINEAGE])


def fail_once(call: int, error: int, partial: int = 0) -> Callable[..., int]:
    """A pwritev whose call number `call` writes `partial` bytes, and whose next one raises; all others work."""
    real, calls = os.pwritev, [0]

    def pwritev(fd: int, pieces: Sequence[bytes | memoryview], offset: int) -> int:
        calls[0] += 1
        if calls[0] == call:
            return os.pwrite(fd, b"".join(pieces)[:partial], offset)
        if calls[0] == call + 1:
            raise OSError(error, "no")
        return real(fd, pieces, offset)

    return pwritev


def test_two_files(desk: Desk) -> None:
    """Each event goes into the files that its items belong to; the state knows sequence, lengths and events."""
    assert desk.apply(scalar(1)) == State(1, size(scalar(1))[SUMMARY], 0, 1)
    desk.apply(custom(2), both(3))
    assert desk.state == State(3, *desk.sizes, 3)
    assert desk.sizes[LINEAGE] == 2 * size(custom(2))[LINEAGE]
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (3, 3.0)]
    assert frame_count(desk.paths[LINEAGE]) == 2
    assert desk.notices == []


def test_an_event_without_items_counts(desk: Desk) -> None:
    """It is committed like any other, and touches no file."""
    assert desk.apply(Event.of(1, 1.0, ())) == State(1, 0, 0, 1)
    assert desk.sizes == (0, 0)


def test_a_batch_is_one_write(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many events a batch has, each file gets one system call."""
    calls: list[int] = []
    real = os.pwritev

    def pwritev(fd: int, pieces: Sequence[bytes], offset: int) -> int:
        calls.append(fd)
        return real(fd, pieces, offset)

    monkeypatch.setattr(os, "pwritev", pwritev)
    desk.apply(*(both(step) for step in range(500)))
    assert len(calls) == 2
    assert desk.state == State(500, *desk.sizes, 500)


def test_a_successor_carries_on(desk: Desk) -> None:
    """A committer that begins at a state cuts off what lies behind it, in both files."""
    desk.apply(both(1))
    for path in desk.paths:
        with open(path, "ab") as file:
            file.write(b"the beginning of a frame that nobody finished")
    desk.committer = Committer(None, desk.notices.append)
    desk.apply(both(2))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (2, 2.0)]
    assert frame_count(desk.paths[LINEAGE]) == 2
    assert desk.sizes == desk.state[1:3]


@needs_pwritev
@pytest.mark.parametrize("partial", [0, 1, 30])
def test_a_failing_write_keeps_nothing_of_the_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch, partial: int) -> None:
    """On ENOSPC the error is raised and the file ends at the last good frame; the same batch can be written later."""
    before = desk.apply(scalar(1))
    jobs = [desk.job(scalar(2)), desk.job(scalar(3), 2)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail_once(1, errno.ENOSPC, partial))
        with pytest.raises(OSError, match="no") as raised:
            desk.committer.apply(before, jobs)
    assert raised.value.errno == errno.ENOSPC
    assert desk.sizes == (before.summary_bytes, 0)
    assert desk.notices == []
    after = desk.committer.apply(before, jobs)
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (2, 2.0), (3, 3.0)]
    assert after == State(3, desk.sizes[SUMMARY], 0, 3)


@needs_pwritev
def test_another_batch_after_one_that_failed(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first is given up, nothing of it stands before or behind the second."""
    desk.apply(scalar(1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail_once(1, errno.ENOSPC, 3000))
        with pytest.raises(OSError, match="no"):
            desk.apply(tensor(2, 1000))
    desk.apply(scalar(3))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (3, 3.0)]
    assert desk.state == State(2, desk.sizes[SUMMARY], 0, 2)


@needs_pwritev
@pytest.mark.parametrize("failing", [SUMMARY, LINEAGE])
def test_one_file_of_two_fails(desk: Desk, monkeypatch: pytest.MonkeyPatch, failing: int) -> None:
    """Neither keeps anything, so that a second try writes nothing twice and a shorter event leaves no rest."""
    before = desk.apply(both(1))
    large = custom(2)._replace(scalars={f"tag{index}": 0.1 for index in range(100)})
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", fail_once(failing + 1, errno.EIO, 5))
        with pytest.raises(OSError, match="no"):
            desk.apply(large)
    assert desk.sizes == before[1:3]
    assert desk.notices == []
    desk.apply(both(3))
    assert desk.state == State(2, *desk.sizes, 2)
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (3, 3.0)]
    assert frame_count(desk.paths[LINEAGE]) == 2


def test_a_file_begun_anew_is_taken_back_too(desk: Desk) -> None:
    """Where one file was deleted and the other cannot be written, no event is left to be written a second time."""
    desk.apply(*(both(step) for step in range(100)))
    for path in desk.paths:
        os.unlink(path)
    os.mkdir(desk.paths[LINEAGE])
    for _ in range(3):
        with pytest.raises(IsADirectoryError):
            desk.apply(both(100))
    assert os.path.getsize(desk.paths[SUMMARY]) == 0
    os.rmdir(desk.paths[LINEAGE])
    desk.apply(both(100))
    assert numbers(desk.paths[SUMMARY]) == [(100, 100.0)]
    assert frame_count(desk.paths[SUMMARY]) == 2
    assert frame_count(desk.paths[LINEAGE]) == 1


@needs_pwritev
def test_what_is_gone_is_said_when_it_is_begun_anew(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, however often it was tried before."""
    desk.apply(scalar(1))
    os.unlink(desk.paths[SUMMARY])
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwritev", fail_once(1, errno.ENOSPC, 10))
            with pytest.raises(OSError, match="no"):
                desk.apply(scalar(2))
    assert desk.notices == []
    desk.apply(scalar(2))
    assert [(notice.kind, notice.step, notice.path) for notice in desk.notices] == [("gone", 2, desk.paths[SUMMARY])]
    assert numbers(desk.paths[SUMMARY]) == [(2, 2.0)]


def test_a_file_that_cannot_be_opened(desk: Desk) -> None:
    """Where the name is taken by a directory nothing is written, and everything when the name is free."""
    os.mkdir(desk.paths[SUMMARY])
    with pytest.raises(IsADirectoryError):
        desk.apply(both(1))
    assert (desk.state, desk.notices) == (State(), [])
    assert not os.path.exists(desk.paths[LINEAGE])
    os.rmdir(desk.paths[SUMMARY])
    desk.apply(both(1))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0)]
    assert frame_count(desk.paths[LINEAGE]) == 1


def test_an_event_that_cannot_be_encoded(desk: Desk) -> None:
    """An encoder's failure costs its event and no other; log and file say what was wrong, the file at its place."""
    bad = [
        Event(2, 1.0, [ArrayItem("tensor", "t", np.array([object()]), "object")]),
        Event(3, 1.0, [ArrayItem("no kind", "t", np.ones(3))], {"loss": 3.0}),
        Event(4, 1.0, [ArrayItem("image", "t", np.ones((2, 2)))]),
        Event(5, 1.0, [MessageItem("train_lineage", "t", 1.0)], {"loss": 5.0}),
        Event(-6, 1.0, (), {"loss": None}),  # type: ignore[dict-item]
        Event(7, 1.0, (), {"\udcff": 1.0}),
    ]
    desk.apply(scalar(1), *bad, scalar(8))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (8, 8.0)]
    assert desk.state == State(8, desk.sizes[SUMMARY], 0, 2, 6)
    steps = [event.step for event in bad]
    assert [(notice.kind, notice.step) for notice in desk.notices] == [("lost", step) for step in steps]
    assert all(notice.reason.startswith("it cannot be encoded: ") for notice in desk.notices)
    assert "no kind" in desk.notices[1].reason
    assert gaps(desk.paths[SUMMARY]) == [Gap(1, notice.step, notice.step, notice.reason) for notice in desk.notices]
    payloads = list(EventFileReader(desk.paths[SUMMARY]))
    kinds = [record.kind for payload in payloads for record in outline.records(payload)]
    assert kinds == ["scalar", *["gap"] * 6, "scalar"]


def test_a_gap_is_no_event(desk: Desk) -> None:
    """One that stands alone is not counted among the events; beside values it is."""
    gap = Gap(5, 10, 14, "the disk took nothing")
    state = desk.apply(commit.gap_event(gap))
    assert state == State(1, desk.sizes[SUMMARY], 0, 0)
    state = desk.apply(scalar(15)._replace(items=[commit.gap_item(gap)]))
    assert state == State(2, desk.sizes[SUMMARY], 0, 1)
    assert gaps(desk.paths[SUMMARY]) == [gap, gap]
    assert numbers(desk.paths[SUMMARY]) == [(15, 15.0)]


def test_a_lost_event(desk: Desk) -> None:
    """`lose` reports it, and leaves a gap of one event at its place."""
    job = commit.lost_job(1, scalar(7), desk.paths, "workers die of it", desk.notices.append)
    state = desk.committer.apply(State(), [job])
    assert state == State(1, desk.sizes[SUMMARY], 0, 0, 1)
    assert desk.notices == [Diagnostic("lost", 7, desk.paths[SUMMARY], "workers die of it")]
    assert gaps(desk.paths[SUMMARY]) == [Gap(1, 7, 7, "workers die of it")]


def reserve(limit: int) -> int:
    """The room that a file keeps for what says that events are missing."""
    return commit.gap_bytes(limit, LAYOUTS["mindspore"])


def test_the_limit(tmp_path: Path) -> None:
    """The first event that does not fit into what little is left closes the file: whole frames only, one notice."""
    one = size(scalar(1))[SUMMARY]
    limit = 10 * one + reserve(10 * one + 100)
    desk = Desk(tmp_path, limit)
    desk.apply(*(scalar(step) for step in range(1, 10)))
    desk.apply(tensor(10, 100), scalar(11))
    assert desk.state == State(11, 9 * one, 0, 9, 0, 1 << SUMMARY, 2)
    desk.apply(scalar(12), tensor(13, 1000))
    assert desk.state == State(13, 9 * one, 0, 9, 0, 1 << SUMMARY, 4)
    assert numbers(desk.paths[SUMMARY]) == [(step, float(step)) for step in range(1, 10)]
    assert desk.notices == [Diagnostic("limit", 10, desk.paths[SUMMARY], f"max_file_size is {limit}")]


def test_an_event_too_large_for_a_file_with_room(tmp_path: Path) -> None:
    """It is left out alone, with a notice of its own; what fits is written, whatever came before it."""
    desk = Desk(tmp_path, 10_000)
    desk.apply(scalar(1), tensor(2, 5000), scalar(3))
    desk.apply(tensor(4, 5000))
    desk.apply(scalar(5))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (3, 3.0), (5, 5.0)]
    assert (desk.state.full, desk.state.events, desk.state.refused) == (0, 3, 2)
    assert desk.notices[0] == Diagnostic("large", 2, desk.paths[SUMMARY], "max_file_size is 10000")


def test_a_full_file_has_room_for_a_gap(tmp_path: Path) -> None:
    """What says that events are missing fits into a file that is closed, whatever the numbers in it."""
    limit = 2000
    desk = Desk(tmp_path, limit)
    desk.apply(*(scalar(step) for step in range(1, 100)))
    assert desk.state.full == 1 << SUMMARY
    length = desk.sizes[SUMMARY]
    gap = Gap(2**63 - 1, -(2**63), -1, commit.limit_reason(limit))
    desk.apply(commit.gap_event(gap))
    assert length < desk.sizes[SUMMARY] <= limit
    assert gaps(desk.paths[SUMMARY]) == [gap]


@pytest.mark.parametrize("spare", [-1, 0, 1])
def test_the_limit_to_the_byte(tmp_path: Path, spare: int) -> None:
    """With the room for a gap, a file may be as large as the limit, and not one byte larger."""
    limit = 10 * size(scalar(1))[SUMMARY] + spare
    limit += reserve(limit)
    desk = Desk(tmp_path, limit)
    desk.apply(*(scalar(step) for step in range(1, 15)))
    assert numbers(desk.paths[SUMMARY]) == [(step, float(step)) for step in range(1, 11 if spare >= 0 else 10)]


def test_each_file_has_its_own_limit(tmp_path: Path) -> None:
    """A full summary file leaves the lineage file open, and the other way round."""
    desk = Desk(tmp_path, 1000)
    desk.apply(*(scalar(step) for step in range(1, 50)))
    assert desk.state.full == 1 << SUMMARY
    desk.apply(custom(10))
    assert (desk.state.full, desk.sizes[LINEAGE]) == (1 << SUMMARY, size(custom(10))[LINEAGE])
    events = desk.state.events
    desk.apply(both(11))  # its lineage is written, but it is not whole
    assert desk.state[2:4] == (2 * size(custom(10))[LINEAGE], events)
    desk.apply(*(custom(step) for step in range(12, 60)))
    assert desk.state.full == 1 << SUMMARY | 1 << LINEAGE
    assert [notice.path for notice in desk.notices] == list(desk.paths)
    assert frame_count(desk.paths[LINEAGE]) == 1000 // size(custom(10))[LINEAGE]


def test_a_full_file_stays_full_for_a_successor(tmp_path: Path) -> None:
    """The limit's notice comes once, though another worker goes on."""
    desk = Desk(tmp_path, 500)
    desk.apply(*(scalar(step) for step in range(1, 20)))
    state = desk.state
    desk.committer = Committer(500, desk.notices.append)
    desk.apply(scalar(20))
    assert desk.state == state._replace(sequence=20, refused=state.refused + 1)
    assert len(desk.notices) == 1


# ---------------------------------------------------------------------- files that others delete


@pytest.mark.parametrize("with_directory", [False, True])
def test_a_deleted_file_is_begun_anew(tmp_path: Path, with_directory: bool) -> None:
    """One notice says that what it held is gone; directory and file are made again and are valid."""
    desk = Desk(tmp_path / "run")
    (tmp_path / "run").mkdir()
    desk.apply(both(1), both(2))
    for path in desk.paths:
        os.unlink(path)
    if with_directory:
        (tmp_path / "run").rmdir()
    desk.apply(both(3))
    desk.apply(both(4))
    assert numbers(desk.paths[SUMMARY]) == [(3, 3.0), (4, 4.0)]
    assert next(iter(EventFileReader(desk.paths[SUMMARY]))).tobytes().endswith(b"MindSpore.Event:1")
    assert frame_count(desk.paths[LINEAGE]) == 2
    assert desk.sizes == desk.state[1:3]
    assert [(notice.kind, notice.step, notice.path) for notice in desk.notices] == [
        ("gone", 3, path) for path in desk.paths
    ]


def test_a_deleted_file_is_noticed_by_whoever_opens_it(desk: Desk) -> None:
    """A worker that comes later does not write behind a hole; the first one then finds the new file."""
    desk.apply(scalar(1))
    first = desk.committer
    os.unlink(desk.paths[SUMMARY])
    desk.committer = Committer(None, desk.notices.append)
    desk.apply(scalar(2))
    desk.committer = first
    desk.apply(scalar(3))
    assert numbers(desk.paths[SUMMARY]) == [(2, 2.0), (3, 3.0)]
    assert len(desk.notices) == 1


def test_a_file_that_was_cut_keeps_the_rest(desk: Desk) -> None:
    """What somebody left of a file is carried on behind, not overwritten."""
    first = desk.apply(scalar(1)).summary_bytes
    desk.apply(scalar(2))
    os.truncate(desk.paths[SUMMARY], first)
    desk.apply(scalar(3))
    assert numbers(desk.paths[SUMMARY]) == [(1, 1.0), (3, 3.0)]
    assert len(desk.notices) == 1


def test_a_renamed_file_goes_on(desk: Desk, tmp_path: Path) -> None:
    """A file that was moved is still the file."""
    desk.apply(scalar(1))
    os.rename(desk.paths[SUMMARY], tmp_path / "moved")
    desk.apply(scalar(2))
    assert numbers(tmp_path / "moved") == [(1, 1.0), (2, 2.0)]
    assert desk.notices == []


# ---------------------------------------------------------------------- the bound before encoding

BOUND_ITEMS: dict[str, Callable[[np.random.Generator], AnyItem]] = {
    "scalar": lambda rng: ScalarItem("准确率" * 20, 0.1),
    "float64": lambda rng: ArrayItem("tensor", "t", rng.normal(size=(3, 1, 7)), "float64"),
    "float16 with NaN": lambda rng: ArrayItem("tensor", "t", np.array([np.nan, 1], np.float16), "float16"),
    "many dims": lambda rng: ArrayItem("tensor", "t", np.zeros((1,) * 30, np.int8), "int8"),
    "histogram": lambda rng: ArrayItem("histogram", "h", rng.normal(size=100_000)),
    "not finite": lambda rng: ArrayItem("histogram", "h", np.array([np.nan, np.inf, -np.inf] * 1000 + [1e300, -1e300])),
    "noise": lambda rng: ArrayItem("image", "i", rng.integers(0, 256, (9, 3, 31, 17), np.uint8)),
    "one pixel": lambda rng: ArrayItem("image", "i", np.zeros((1, 1, 1, 1))),
    "graph": lambda rng: MessageItem("graph", "g", rng.bytes(5000)),
    "lineage": lambda rng: MessageItem("custom_lineage_data", "c", custom_message({"a": "b" * 100})),
}


@pytest.mark.parametrize("name", BOUND_ITEMS)
def test_no_item_takes_more_than_its_bound(rng: np.random.Generator, name: str) -> None:
    """`max_file_size` relies on it: no event is larger in its files than was said before it was encoded."""
    item = BOUND_ITEMS[name](rng)
    for count in (1, 20):
        event = Event.of(2**62, 1.0, (item,) * count)
        assert sum(size(event)) <= upper_bound_bytes(event)
    if not isinstance(item, ScalarItem):
        assert sum(size(Event.of(-1, 1.0, (item,)))) - 60 <= item_bound_bytes(item)


# ---------------------------------------------------------------------- tensors as files of their own

TAGS = (
    "a b", "a:b", "a_b", "a/b", "/a/b", "a//b", "", "准确率", "loss %", "x" * 300, "a\nb", "..", "a\\b", "CON", "é",
    "e\u0301", "😀", ".", "../../up", "a%2Fb", "a\0b", "~", "x" * 299 + "y", "准" * 100, "准" * 99 + "率", "a_1",
    "tensor", "x" * 135 + "~" + "0" * 64, "x" * 200, "x" * 201, "\udcff",
)  # fmt: skip


def exported(directory: Path) -> dict[str, Any]:
    return {path.name: np.load(path, allow_pickle=False) for path in (directory / "tensor").iterdir()}


def export(directory: Path, event: Event) -> list[Diagnostic]:
    notices: list[Diagnostic] = []
    export_tensors(event, str(directory), notices.append)
    return notices


def test_exported_names_are_one_to_one(tmp_path: Path) -> None:
    """Whatever the tags are, each tensor has a file of its own inside the directory, with a name that fits anywhere."""
    directory = tmp_path / "export"
    items = [ArrayItem("tensor", tag, np.array([index], np.int32), "int32") for index, tag in enumerate(TAGS)]
    assert export(directory, Event.of(-(2**63), 1.0, items)) == []
    found = exported(directory)
    assert sorted(int(array[0]) for array in found.values()) == list(range(len(TAGS)))
    assert sorted(os.listdir(tmp_path)) == ["export"]
    assert sorted(os.listdir(directory)) == ["tensor"]
    assert max(len(os.fsencode(name)) for name in found) <= 255


def test_exported_steps_are_files_of_their_own(tmp_path: Path) -> None:
    """Tag and step cannot be taken for another tag and step."""
    for tag, step in (("a", 12), ("a_1", 2), ("a", -1), ("a_-1", 1), ("a", 1)):
        export(tmp_path, Event.of(step, 1.0, (ArrayItem("tensor", tag, np.array([step]), "int64"),)))
    assert sorted(exported(tmp_path)) == sorted(["a_12.npy", "a_1_2.npy", "a_-1.npy", "a_-1_1.npy", "a_1.npy"])


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5, np.float64), np.zeros((0, 3), np.float32), np.array([True, False]),
        np.arange(6.0).reshape(2, 3).T, np.array([1.5, -0.0], np.float16), np.array([2**63], np.uint64),
    ],
    ids=["0-d", "empty", "bool", "transposed", "float16", "uint64"],
)  # fmt: skip
def test_exported_values(tmp_path: Path, array: Any) -> None:
    """Dtype, shape and values are those recorded."""
    assert export(tmp_path, Event.of(1, 1.0, (ArrayItem("tensor", "t", array, array.dtype.name),))) == []
    (result,) = exported(tmp_path).values()
    assert (result.dtype, result.shape) == (array.dtype, array.shape)
    assert result.tobytes() == array.tobytes()


def test_bfloat16_is_exported_as_float32(tmp_path: Path) -> None:
    """NumPy has no bfloat16; each of its values is a float32."""
    export(tmp_path, Event.of(1, 1.0, (ArrayItem("tensor", "t", np.array([1.0, 3.140625], np.float32), "bfloat16"),)))
    assert exported(tmp_path)["t_1.npy"].dtype == np.float32


def test_only_tensors_are_exported(tmp_path: Path) -> None:
    """Other kinds are not, and without a tensor there is no directory."""
    items = (*custom(1).items, ArrayItem("histogram", "h", np.ones(3)), ArrayItem("image", "i", np.ones((1, 1, 2, 2))))
    assert export(tmp_path, Event(1, 1.0, items, {"loss": 1.0})) == []
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    """A failure is reported for each tensor and stops nothing."""
    (tmp_path / "tensor").write_text("in the way")
    items = (*tensor(1, 3, "a").items, *tensor(1, 3, "b").items)
    notices = export(tmp_path, Event.of(1, 1.0, items))
    assert [(notice.kind, notice.step, os.path.basename(notice.path)) for notice in notices] == [
        ("export", 1, "a_1.npy"),
        ("export", 1, "b_1.npy"),
    ]


def test_objects_are_not_exported(tmp_path: Path) -> None:
    """No file of ours holds a pickle, and none is left half made."""
    (notice,) = export(tmp_path, Event.of(1, 1.0, (ArrayItem("tensor", "t", np.array([object()]), "object"),)))
    assert (notice.kind, "pickle" in notice.reason) == ("export", True)
    assert list((tmp_path / "tensor").iterdir()) == []
