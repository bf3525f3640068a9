"""Which start of a run goes on from which, by what the starts wrote down; wall clocks only of files without a start."""

from __future__ import annotations

import fcntl
import shutil
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.eventfile import names
from instrument.runs.starts import Origin, replaced_from
from instrument.values import ENDED, FAILED, FINISHED, End, Start
from tests.runs.build import SECONDS, encoded, steps, write

#: The first start, closed in the end, with the steps 0 to 9.
FIRST = Start("a" * 16, 1, {})
DONE = End(FINISHED)


def first(directory: Path, start: float = 1000.0, end: End | None = DONE, host: str = "host") -> Path:
    return write(directory, steps("scalar", "x", range(10), 1.0, start), host=host, start=FIRST, end=end)


def second(directory: Path, found: dict[str, int], start: float = 2000.0, host: str = "host") -> None:
    """Steps 5 to 14, by a start with the number 2."""
    events = steps("scalar", "x", range(5, 15), 2.0, start)
    write(directory, events, SECONDS + 1, host=host, start=Start("b" * 16, 2, found), end=DONE)


def values(directory: Path) -> list[float]:
    """The values by step, those of one step by value."""
    points = read(directory).scalars("x")
    return [value for _, value in sorted(zip(points.step.tolist(), points.value.tolist(), strict=True))]


CONTINUED = [1.0] * 5 + [2.0] * 10
APART = [1.0] * 5 + [1.0, 2.0] * 5 + [2.0] * 5


@pytest.mark.parametrize("host", ["host", "another"])
@pytest.mark.parametrize("start", [2000.0, 500.0, 1004.5], ids=["later", "clock set back", "clock in between"])
def test_a_start_goes_on_from_one_that_had_ended(tmp_path: Path, host: str, start: float) -> None:
    """Whatever the clocks say, and on whichever host."""
    first(tmp_path)
    second(tmp_path, {}, start, host)
    assert values(tmp_path) == CONTINUED
    everything = read(tmp_path).scalars("x", superseded=True)
    assert sorted(everything.step[everything.superseded].tolist()) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("host", ["host", "another"])
@pytest.mark.parametrize("start", [2000.0, 500.0])
def test_a_start_goes_on_from_one_that_was_killed(tmp_path: Path, host: str, start: float) -> None:
    """A file without an end that has the size that the start found is over."""
    path = first(tmp_path, end=None)
    second(tmp_path, {path.name: path.stat().st_size}, start, host)
    assert values(tmp_path) == CONTINUED


@pytest.mark.parametrize("end", [None, DONE])
@pytest.mark.parametrize(("host", "start"), [("host", 1002.5), ("another", 1002.5), ("another", 9000.0)])
def test_starts_that_were_at_work_at_the_same_time_stay_apart(
    tmp_path: Path, host: str, start: float, end: End | None
) -> None:
    """The file has grown since the start found it; clocks of two hosts may differ."""
    path = first(tmp_path, end=end)
    size = sum(map(len, encoded(steps("scalar", "x", range(3), 1.0, 1000.0), FIRST, 999.5)))
    second(tmp_path, {path.name: size}, start, host)
    assert values(tmp_path) == APART
    assert not read(tmp_path).scalars("x", superseded=True).superseded.any()


def test_what_a_worker_still_wrote_for_a_killed_training_is_no_training(tmp_path: Path) -> None:
    """The file has grown, but by events that were recorded on this host before the start."""
    path = first(tmp_path, end=None)
    second(tmp_path, {path.name: path.stat().st_size - 100}, 2000.0)
    assert values(tmp_path) == CONTINUED


def test_the_end_of_an_open_recorder_is_no_event(tmp_path: Path) -> None:
    """One that was left open, recorded nothing more and was closed later does not stand beside its successor."""
    path = first(tmp_path, end=None)
    size = path.stat().st_size
    first(tmp_path, end=DONE)
    second(tmp_path, {path.name: size}, host="another")
    assert values(tmp_path) == CONTINUED


def test_other_ranks_never_go_on(tmp_path: Path) -> None:
    """Whatever their numbers are."""
    first(tmp_path)
    events = steps("scalar", "x", [5], 2.0, 2000.0)
    write(tmp_path, events, SECONDS + 1, device=1, start=Start("b" * 16, 2, {}))
    assert len(read(tmp_path).scalars("x")) == 11


def test_a_third_start_goes_on_from_both_that_were_at_work_together(tmp_path: Path) -> None:
    """Of two hosts, and its own file stands for the steps from its first on."""
    path = first(tmp_path)
    second(tmp_path, {path.name: 10}, host="another")
    events = steps("scalar", "x", [7, 8], 3.0, 1.0)
    write(tmp_path, events, SECONDS + 2, host="third", start=Start("c" * 16, 3, {}))
    points = read(tmp_path).scalars("x")
    assert points.step.tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 6, 7, 8]
    assert set(points.by_writer()) == {(0, "third")}


def test_starts_of_one_number_know_nothing_of_each_other(tmp_path: Path) -> None:
    """On one host times decide, as for files without a start; two hosts stay apart."""
    for host in ("host", "another"):
        directory = tmp_path / host
        first(directory)
        events = steps("scalar", "x", range(5, 15), 2.0, 2000.0)
        write(directory, events, SECONDS + 1, host=host, start=Start("b" * 16, 1, {}), end=DONE)
    assert values(tmp_path / "host") == CONTINUED
    assert values(tmp_path / "another") == APART


def test_a_start_goes_on_from_files_of_others_that_it_found(tmp_path: Path) -> None:
    """Of MindSpore's recorder or release 0.1.0, on another host too, and with the clock set back."""
    path = write(tmp_path, steps("scalar", "x", range(10), 1.0, 1000.0))
    second(tmp_path, {path.name: path.stat().st_size}, 500.0, "another")
    assert values(tmp_path) == CONTINUED


def test_a_file_of_others_that_came_later_is_ordered_by_times(tmp_path: Path) -> None:
    """It goes on from a start on the same host that was over when it began."""
    first(tmp_path)
    write(tmp_path, steps("scalar", "x", range(5, 15), 2.0, 2000.0), SECONDS + 1)
    assert values(tmp_path) == CONTINUED
    write(tmp_path, steps("scalar", "x", [0], 3.0, 3000.0), SECONDS + 2, host="another")
    assert read(tmp_path).scalars("x").step.tolist() == [0, 0, *range(1, 15)]


def test_the_run_counts_as_one_series(tmp_path: Path) -> None:
    """Points know their host; grouped by writer they are those of the host that went on last."""
    first(tmp_path)
    second(tmp_path, {}, host="another")
    points = read(tmp_path).scalars("x")
    assert points.writers == ((0, "another"), (0, "host"))
    assert points.writer[4:6] == [(0, "host"), (0, "another")]
    (own,) = points.by_writer().items()
    assert own[0] == (0, "another")
    np.testing.assert_array_equal(own[1].value, points.value)


def test_what_starts_replace_is_counted(tmp_path: Path) -> None:
    """By `replaced`, as by the points themselves."""
    first(tmp_path)
    second(tmp_path, {}, 500.0, "another")
    contents = read(tmp_path).contents
    assert contents.replaced(contents.keys()) == 5


def test_a_thousand_starts_are_ordered_as_if_each_pair_were_compared(rng: np.random.Generator) -> None:
    """The short way for starts that all go on from each other gives what the long one gives."""
    for _ in range(50):
        count = int(rng.integers(1, 12))
        numbers = rng.permutation(count) + 1
        first_steps = rng.integers(0, 20, count).tolist()
        origins = [
            Origin(str(index), (0, f"h{index % 2}"), 0.0, 1.0, 10, Start(str(index), int(number), {}), 0.0)
            for index, number in enumerate(numbers)
        ]
        expected = [
            min((first_steps[j] for j in range(count) if origins[j].follows(origins[i])), default=None)
            for i in range(count)
        ]
        assert replaced_from(origins, first_steps) == expected
    many = [Origin(str(i), (0, "h"), 0.0, 1.0, 10, Start(str(i), i + 1, {}), 0.0) for i in range(1000)]
    assert replaced_from(many, list(range(1000))) == [*range(1, 1000), None]


# ---------------------------------------------------------------- how a run ended


@pytest.mark.parametrize(
    ("end", "host", "state"),
    [
        (End(FINISHED), "host", "finished"),
        (End(FAILED, "ValueError: no"), "host", "failed"),
        (End(ENDED), "host", "ended"),
        (None, names.host(), "killed"),
        (None, "another-host", "unknown"),
    ],
)
def test_the_state_of_a_run_is_how_its_last_start_ended(tmp_path: Path, end: End | None, host: str, state: str) -> None:
    """Starts are listed with number, times, state and reason; without an end it is known on their own host only."""
    first(tmp_path, end=End(FAILED, "first"), host="before")
    events = steps("scalar", "x", [20, 21], 2.0, 2000.0)
    write(tmp_path, events, SECONDS + 1, host=host, start=Start("b" * 16, 2, {}), end=end)
    run = read(tmp_path)
    assert run.state == state
    before, last = run.starts
    assert (before.number, before.id, before.host, before.state, before.reason) == (
        1, "a" * 16, "before", "failed", "first",
    )  # fmt: skip
    assert (before.began, before.ended) == (999.5, 1009.5)
    assert (last.number, last.state, last.reason) == (2, state, end.reason if end is not None else "")
    assert last.ended == (2001.5 if end is not None else None)


def test_a_file_that_is_being_written_is_running(tmp_path: Path) -> None:
    """As long as its writer holds it."""
    path = first(tmp_path, end=None, host=names.host())
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert read(tmp_path).state == "running"
    assert read(tmp_path).state == "killed"


def test_of_several_ranks_the_worst_counts(tmp_path: Path) -> None:
    """One that failed makes the run fail."""
    for rank, end in enumerate((DONE, End(FAILED, "x"), DONE)):
        events = steps("scalar", "x", [1], 2.0, 2000.0)
        write(tmp_path, events, device=rank, start=Start(str(rank), 1, {}), end=end)
    assert read(tmp_path).state == "failed"
    assert read(tmp_path).of_rank(2).state == "finished"


def test_files_without_a_start_tell_nothing(tmp_path: Path) -> None:
    """Of MindSpore's recorder and of release 0.1.0: no starts, and the state is unknown."""
    write(tmp_path, steps("scalar", "x", [1], 2.0, 2000.0))
    run = read(tmp_path)
    assert (run.starts, run.state, run.damage) == ([], "unknown", [])


def test_neither_start_nor_end_counts_as_a_point(tmp_path: Path) -> None:
    """The times of a file are those of its points, its steps too; a copy of the file under another name is whole."""
    path = first(tmp_path)
    run = read(tmp_path)
    (file,) = run.contents.files
    assert (file.first_wall_time, file.last_wall_time, file.content_bytes < path.stat().st_size) == (1000, 1009, True)
    assert run.extent() == (0, 9, 1009.0)
    assert run.tags() == {"scalar": ["x"]}


def test_a_start_that_is_damaged_is_damage(tmp_path: Path) -> None:
    """Points are read all the same, by their times."""
    path = first(tmp_path)
    broken = encoded([], Start("x", 1, {}))[0]
    good = path.read_bytes()
    path.write_bytes(broken.replace(b"x", b"\xff") + good)
    assert len(read(tmp_path).damage) == 1
    assert len(read(tmp_path).scalars("x")) == 10


def test_a_run_that_is_followed_ends(tmp_path: Path) -> None:
    """The state of a run that is looked at anew is that of its file now."""
    whole = first(tmp_path / "whole")
    path = tmp_path / "run" / whole.name
    path.parent.mkdir()
    path.write_bytes(whole.read_bytes()[:-40])
    run = read(tmp_path / "run", follow=True)
    assert run.state == "unknown"
    shutil.copy(whole, path)
    assert run.state == "finished"
