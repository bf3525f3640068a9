"""What `read` makes of the files of a run."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from instrument import read
from instrument.codec import image, scalar, wire
from instrument.codec import landscape as landscape_codec
from instrument.codec.lineage import custom_message
from instrument.errors import CorruptMessage, NoSuchRun
from instrument.runs.points import Points
from instrument.runs.run import Run, Runs, find_runs, read_run
from instrument.values import ArrayItem, Event, Histogram, Item, LossSurface, MessageItem
from tests import protobuf
from tests.runs.build import SECONDS, framed, item, steps, write, write_lineage


def number(points: Points, index: int) -> float:
    """The number that fills the value at `index`, whatever its kind."""
    value = points.decode(index)
    if points.kind == "histogram":
        return float(value.min)
    if points.kind == "image":
        return float(image.pixels(value)[0, 0, 0])
    return float(value if points.kind == "scalar" else value.array[0])


def test_scalars_come_back_exactly(tmp_path: Path) -> None:
    """Step 0, 0.0, NaN and the infinities are ordinary data, and a float64 keeps all its bits."""
    values = [0.0, -0.0, math.nan, math.inf, -math.inf, 0.1, 1e300, 2.0**-1074]
    write(tmp_path, [Event.of(step, step + 0.25, (item("scalar", "x", value),)) for step, value in enumerate(values)])

    scalars = read(tmp_path).scalars("x")

    np.testing.assert_array_equal(scalars.value, np.array(values))
    assert math.copysign(1, scalars.value[1]) == -1
    assert scalars.value.dtype == np.float64
    assert scalars.step.dtype == np.int64
    assert scalars.step.tolist() == list(range(8))
    assert scalars.wall_time.dtype == np.float64
    assert scalars.wall_time.tolist() == [step + 0.25 for step in range(8)]
    assert scalars.writer == [(0, "host")] * 8
    assert len(scalars) == 8
    assert list(scalars)[5] == (5, 5.25, 0.1)
    assert scalars[5] == 0.1
    assert 0 in scalars
    assert 8 not in scalars
    with pytest.raises(NoSuchRun, match=r"scalar 'x' has no point at step 8; it has 8 points, steps 0 to 7"):
        scalars[8]


def test_extreme_steps(tmp_path: Path) -> None:
    """Negative steps and the ends of int64 are kept, in order."""
    ends = [2**63 - 1, -1, 0, -(2**63)]
    write(tmp_path, [Event.of(step, 1.0, (item("scalar", "x", float(index)),)) for index, step in enumerate(ends)])

    scalars = read(tmp_path).scalars("x")

    assert scalars.step.tolist() == [-(2**63), -1, 0, 2**63 - 1]
    assert scalars[2**63 - 1] == 0.0
    assert scalars[-(2**63)] == 3.0


def test_tensors_of_any_shape(tmp_path: Path) -> None:
    """Empty, zero-dimensional and wide tensors come back with dtype and shape; `[step]` is the array."""
    arrays: list[NDArray[Any]] = [
        np.empty((0, 3), np.float32),
        np.array(7, np.int64),
        np.arange(6, dtype=np.float16).reshape(2, 3),
    ]
    events = [Event.of(step, 1.0, (ArrayItem("tensor", "w", a, a.dtype.name),)) for step, a in enumerate(arrays)]
    write(tmp_path, events)

    tensors = read(tmp_path).tensors("w")

    for step, array in enumerate(arrays):
        assert tensors[step].dtype == array.dtype
        np.testing.assert_array_equal(tensors[step], array)
        assert tensors.values[step].dtype == array.dtype.name
    assert [value.array.shape for _, _, value in tensors] == [(0, 3), (), (2, 3)]


def test_a_tag_may_be_used_by_several_kinds(tmp_path: Path) -> None:
    """One tag under four kinds is four series, listed in the order of the kinds."""
    kinds = ["scalar", "image", "tensor", "histogram"]
    write(tmp_path, [Event.of(3, 1.0, tuple(item(kind, "same", 5.0) for kind in reversed(kinds)))])

    run = read(tmp_path)

    assert run.tags() == {kind: ["same"] for kind in kinds}
    assert list(run.tags()) == kinds
    assert run.kinds("same") == kinds
    assert run.scalars("same")[3] == 5.0
    assert run.tensors("same")[3].tolist() == [5.0] * 4
    histogram = run.histograms("same")[3]
    assert isinstance(histogram, Histogram)
    assert (histogram.count, histogram.min, histogram.max, histogram.sum) == (4, 5.0, 5.0, 20.0)
    assert image.pixels(run.images("same")[3]).tolist() == [[[5], [5]], [[5], [5]]]


@pytest.mark.parametrize("kind", ["scalar", "tensor", "histogram", "image"])
def test_a_restart_wins_from_its_first_step_on(tmp_path: Path, kind: str) -> None:
    """Steps 0 to 150, then a restart at 100 up to 200: 201 points, and all 252 on demand."""
    write(tmp_path, steps(kind, "x", range(151), 1.0, start=1000.0))
    write(tmp_path, steps(kind, "x", range(100, 201), 2.0, start=2000.0), seconds=SECONDS + 1000)
    run = read(tmp_path)

    points = run.points(kind, "x")
    assert points.step.tolist() == list(range(201))
    assert [number(points, index) for index in range(201)] == [1.0] * 100 + [2.0] * 101
    assert not points.superseded.any()

    everything = run.points(kind, "x", superseded=True)
    assert len(everything) == 252
    assert everything.step.tolist() == sorted([*range(151), *range(100, 201)])
    assert everything.step[everything.superseded].tolist() == list(range(100, 151))
    old = np.flatnonzero(everything.superseded).tolist()
    assert [number(everything, index) for index in old] == [1.0] * 51


def test_the_typed_methods_know_superseded_points(tmp_path: Path) -> None:
    """Each method takes `superseded`, and `[step]` then still gives the point that stands."""
    kinds = ["scalar", "tensor", "histogram", "image"]
    for value, start in ((1.0, 10.0), (2.0, 20.0)):
        events = [Event.of(5, start, tuple(item(kind, "x", value) for kind in kinds))]
        write(tmp_path, events, seconds=SECONDS + int(start))
    run = read(tmp_path)

    assert run.scalars("x", superseded=True).value.tolist() == [1.0, 2.0]
    assert run.scalars("x", superseded=True)[5] == 2.0
    assert run.tensors("x", superseded=True)[5].tolist() == [2.0] * 4
    assert [value.min for value in run.histograms("x", superseded=True).values] == [1.0, 2.0]
    assert len(run.images("x", superseded=True)) == 2
    assert len(run.images("x")) == 1


def test_a_restart_that_ended_early_hides_what_it_replaced(tmp_path: Path) -> None:
    """A restart at 100 that reached 110 supersedes 111 to 150 too; a third start at 105 supersedes its tail."""
    write(tmp_path, steps("scalar", "x", range(151), 1.0, start=1000.0))
    write(tmp_path, steps("scalar", "x", range(100, 111), 2.0, start=2000.0), seconds=SECONDS + 1)
    write(tmp_path, steps("scalar", "x", range(105, 108), 3.0, start=3000.0), seconds=SECONDS + 2)

    scalars = read(tmp_path).scalars("x")

    assert scalars.value.tolist() == [1.0] * 100 + [2.0] * 5 + [3.0] * 3
    everything = read(tmp_path).scalars("x", superseded=True)
    assert len(everything) == 165
    assert everything[150] == 1.0


def test_a_restart_supersedes_each_tag_from_where_it_recorded_it(tmp_path: Path) -> None:
    """A tag that the later file holds from step 8 on, or not at all, keeps the earlier points before that."""
    old = [Event.of(step, 10.0 + step, tuple(item("scalar", tag, 1.0) for tag in "abc")) for step in range(10)]
    new = [Event.of(step, 100.0 + step, (item("scalar", "a", 2.0),)) for step in range(5, 12)]
    new += [Event.of(8, 120.0, (item("scalar", "b", 2.0),))]
    write(tmp_path, old)
    write(tmp_path, new, seconds=SECONDS + 1)

    run = read(tmp_path)

    assert run.scalars("a").value.tolist() == [1.0] * 5 + [2.0] * 7
    assert run.scalars("b").step.tolist() == list(range(9))
    assert run.scalars("b").value.tolist() == [1.0] * 8 + [2.0]
    assert run.scalars("c").value.tolist() == [1.0] * 10


@pytest.mark.parametrize("kind", ["scalar", "histogram"])
def test_writers_open_at_once_keep_all_points(tmp_path: Path, kind: str) -> None:
    """Two files of one device written in turns lose nothing: A 0 to 9, B 10 to 19, A 20 to 29."""
    a = steps(kind, "x", range(10), 1.0, start=100.0) + steps(kind, "x", range(20, 30), 1.0, start=200.0)
    b = steps(kind, "x", range(10, 20), 2.0, start=150.0)
    write(tmp_path, a)
    write(tmp_path, b, seconds=SECONDS + 1)

    points = read(tmp_path).points(kind, "x")

    assert points.step.tolist() == list(range(30))
    assert [number(points, index) for index in range(30)] == [1.0] * 10 + [2.0] * 10 + [1.0] * 10
    assert len(read(tmp_path).points(kind, "x", superseded=True)) == 30


def test_writers_open_at_once_keep_steps_that_both_recorded(tmp_path: Path) -> None:
    """Two files with the same steps at the same time are both whole, and neither is taken for a restart."""
    write(tmp_path, steps("scalar", "x", range(10), 1.0, start=100.0))
    write(tmp_path, steps("scalar", "x", range(10), 2.0, start=100.5), seconds=SECONDS + 1)

    scalars = read(tmp_path).scalars("x")

    assert scalars.step.tolist() == [step for step in range(10) for _ in range(2)]
    assert scalars.value.tolist() == [1.0, 2.0] * 10


def test_a_late_first_point_of_a_tag_supersedes_nothing_recorded_meanwhile(tmp_path: Path) -> None:
    """What counts is when the files began and ended, not when they first and last held the tag."""
    write(tmp_path, steps("scalar", "loss", range(10), 1.0, start=100.0))
    b = steps("scalar", "accuracy", [0], 0.5, start=99.0) + steps("scalar", "loss", [5], 2.0, start=200.0)
    write(tmp_path, b, seconds=SECONDS + 1)

    loss = read(tmp_path).scalars("loss")

    assert loss.step.tolist() == [0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
    assert loss[5] == 2.0


def test_files_of_one_second_are_ordered_by_their_points(tmp_path: Path) -> None:
    """Names that tie, here with different prefixes, do not decide which file is the restart."""
    later = write(tmp_path, steps("scalar", "x", [1, 2], 2.0, start=200.0))
    later.rename(tmp_path / f"a{later.name}")
    write(tmp_path, steps("scalar", "x", [0, 1], 1.0, start=100.0))

    assert read(tmp_path).scalars("x").value.tolist() == [1.0, 2.0, 2.0]


def test_the_last_of_a_step_recorded_twice_wins(tmp_path: Path) -> None:
    """In one file, and even in one event (which others may write), the earlier value of a step is superseded."""
    path = write(tmp_path, steps("scalar", "x", [1, 2, 1], 1.0, start=10.0))
    twice = wire.delimited(5, scalar.encode_field("x", 3.0) + scalar.encode_field("x", 4.0))
    path.write_bytes(path.read_bytes() + framed([wire.double(1, 20.0), wire.integer(2, 2), twice]))

    scalars = read(tmp_path).scalars("x")
    everything = read(tmp_path).scalars("x", superseded=True)

    assert list(scalars) == [(1, 12.0, 1.0), (2, 20.0, 4.0)]
    assert list(everything) == [(1, 10.0, 1.0), (1, 12.0, 1.0), (2, 11.0, 1.0), (2, 20.0, 3.0), (2, 20.0, 4.0)]
    assert everything.superseded.tolist() == [True, False, True, True, False]


def test_steps_that_go_back_within_a_file_are_all_kept(tmp_path: Path) -> None:
    """Steps in falling order are sorted, and none is taken for a restart."""
    write(tmp_path, steps("scalar", "x", range(9, -1, -1), 1.0, start=10.0))

    assert read(tmp_path).scalars("x").step.tolist() == list(range(10))


def test_writers_are_kept_apart(tmp_path: Path) -> None:
    """Devices and hosts never supersede each other; each point knows its writer."""
    for device, host, start in ((0, "a", 100.0), (1, "a", 200.0), (0, "b.c", 300.0)):
        write(tmp_path, steps("scalar", "x", range(3), start, start=start), device=device, host=host)

    scalars = read(tmp_path).scalars("x")

    assert scalars.step.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert scalars.value.tolist() == [100.0, 200.0, 300.0] * 3
    assert scalars.writer == [(0, "a"), (1, "a"), (0, "b.c")] * 3
    assert scalars.writers == ((0, "a"), (0, "b.c"), (1, "a"))
    apart = scalars.by_writer()
    assert {writer: points.value.tolist() for writer, points in apart.items()} == {
        (0, "a"): [100.0] * 3,
        (1, "a"): [200.0] * 3,
        (0, "b.c"): [300.0] * 3,
    }
    assert apart[1, "a"].writer == [(1, "a")] * 3
    assert scalars[1] == 300.0


def test_values_are_decoded_only_when_asked_for(tmp_path: Path) -> None:
    """A damaged value leaves its series readable: the error names kind, tag and step."""
    good = steps("tensor", "w", [0, 1, 2], 1.0, start=10.0)
    path = write(tmp_path, good[:1])
    value = b"\x0a\x01w" + b"\x42\x04\x08\x05\x10\x0b"  # dims [5], float32, no data
    payload = (
        b"\x09" + bytes(8) + b"\x10\x01" + b"\x2a" + bytes([len(value) + 2]) + b"\x0a" + bytes([len(value)]) + value
    )
    with path.open("ab") as file:
        file.write(framed([payload]))
    write(tmp_path, good[2:], seconds=SECONDS + 1)

    tensors = read(tmp_path).tensors("w")

    assert tensors.step.tolist() == [0, 1, 2]
    assert tensors[2].tolist() == [1.0] * 4
    with pytest.raises(CorruptMessage, match=r"^tensor 'w' at step 1: a tensor .* holds 0 values$"):
        tensors[1]
    with pytest.raises(CorruptMessage, match="at step 1"):
        _ = tensors.values
    assert "damaged: a tensor" in repr(tensors)


def test_the_graph_is_the_one_recorded_last(tmp_path: Path) -> None:
    """Graphs are listed by name; `graph` is the newest of all, None where there is none."""
    graph_class = protobuf.message_class("GraphProto")
    graphs = [graph_class(name=name).SerializeToString() for name in ("one", "two", "one")]
    events = [
        Event.of(0, time, (MessageItem("graph", "", data),)) for time, data in zip((5.0, 9.0, 7.0), graphs, strict=True)
    ]
    events[2] = Event.of(1, 7.0, events[2].items)
    write(tmp_path, events)

    run = read(tmp_path)

    assert run.tags() == {"graph": ["one", "two"]}
    assert run.graph is not None
    assert run.graph.data == graphs[1]
    assert run.graphs("one").step.tolist() == [0, 1]
    write(tmp_path / "none", [])
    assert read(tmp_path / "none").graph is None


def test_landscapes_are_read(tmp_path: Path) -> None:
    """A landscape is its serialised message."""
    message = protobuf.message_class("LossLandscape")()
    message.metadata.unit = "step"
    write(tmp_path, [Event.of(0, 1.0, (MessageItem("landscape", "loss", message.SerializeToString()),))])

    assert read(tmp_path).points("landscape", "loss")[0].data == message.SerializeToString()


def test_landscapes_are_arrays(tmp_path: Path) -> None:
    """Those of all tags in the order of recording, each in its last version; one that is damaged is listed as such."""

    def plane(tag: str, size: int) -> Item:
        axis, z, none = np.linspace(0, 1, size), np.ones((size, size)), np.empty(0)
        numbers, path = np.empty(0, np.int64), np.empty((0, 2))
        surface = LossSurface(tag, axis, axis, z, numbers, path, none, none, none, none, none)
        return MessageItem("landscape", tag, landscape_codec.from_surface(surface))

    items = [plane("b", 3), plane("a", 4), plane("b", 5), MessageItem("landscape", "c", b"\x08\x01")]
    write(tmp_path, [Event.of(0, float(second), (one,)) for second, one in enumerate(items)])
    run = read(tmp_path)
    assert [(one.tag, one.z.shape) for one in run.landscapes] == [("a", (4, 4)), ("b", (5, 5))]
    assert ["landscape 'c'" in damage.reason for damage in run.damage] == [True]


def test_lineage_is_plain_dictionaries(tmp_path: Path) -> None:
    """The last train lineage counts, custom keys are put together, and kinds not recorded are absent."""
    train = protobuf.message_class("TrainLineage")
    first, second = train(), train()
    first.hyper_parameters.optimizer = "SGD"
    second.hyper_parameters.epoch = 3
    write_lineage(
        tmp_path,
        [
            ("train_lineage", first.SerializeToString()),
            ("custom_lineage_data", custom_message({"version": "one", "n": 1})),
            ("train_lineage", second.SerializeToString()),
            ("custom_lineage_data", custom_message({"n": 2})),
        ],
    )

    run = read(tmp_path)

    assert run.lineage == {
        "train": {"hyper_parameters": {"epoch": 3}},
        "custom": {"version": "one", "n": 2},
    }
    assert run.tags() == {}
    assert run.damage == []


def test_a_lineage_that_is_no_message_is_damage(tmp_path: Path) -> None:
    """A broken lineage message is reported with file and offset; the others are read."""
    path = write_lineage(
        tmp_path, [("custom_lineage_data", custom_message({"n": 1})), ("train_lineage", b"\xff\xff\xff")]
    )
    run = read(tmp_path)

    assert run.lineage == {"custom": {"n": 1}}
    (damage,) = run.damage
    assert (damage.path, damage.torn) == (str(path), False)
    assert damage.offset + damage.bytes_skipped == path.stat().st_size
    assert damage.reason == "a train_lineage is no TrainLineage message"


def test_any_name_is_a_tag(tmp_path: Path) -> None:
    """Newlines, slashes, emoji, 5000 characters, NUL and the empty name come back as they were."""
    tags = ["a\nb", "../x/y", "\N{ROCKET}\N{SNOWMAN}", "long" * 1250, "", "nul\0", "loss[:Scalar]"]
    write(tmp_path, [Event.of(1, 1.0, tuple(item("scalar", tag, float(i)) for i, tag in enumerate(tags)))])

    run = read(tmp_path)

    assert run.tags() == {"scalar": sorted(tags)}
    assert [run.scalars(tag)[1] for tag in tags] == [float(i) for i in range(len(tags))]
    with pytest.raises(NoSuchRun, match=r"has no scalar 'longlong.*\.\.\..*longlong'; it has "):
        run.scalars("long" * 1249)
    assert max(map(len, repr(run).splitlines())) < 500
    assert "\0" not in repr(run)


def test_an_unknown_tag_names_the_nearest(tmp_path: Path) -> None:
    """The error is a LookupError that says what the run has instead."""
    write(tmp_path / "lenet", [Event.of(0, 1.0, (item("scalar", "loss/auto", 1.0), item("tensor", "weight", 1.0)))])
    run = read(tmp_path / "lenet")

    with pytest.raises(LookupError, match=r"^run 'lenet' has no scalar 'los/auto'; the nearest is 'loss/auto'$"):
        run.scalars("los/auto")
    with pytest.raises(NoSuchRun, match=r"^run 'lenet' has no scalar 'weight'; that tag is read by tensors\(\)$"):
        run.scalars("weight")
    with pytest.raises(NoSuchRun, match=r"^run 'lenet' has no image 'x'; it has none at all$"):
        run.images("x")
    with pytest.raises(NoSuchRun, match=r"^run 'lenet' has no tag 'zzz'; it has 'loss/auto', 'weight'$"):
        run.kinds("zzz")


def test_a_run_is_a_file_or_a_folder(tmp_path: Path) -> None:
    """A file is a run by itself; the folder has all its files; str and PathLike are taken."""
    first = write(tmp_path / "run", steps("scalar", "x", [0], 1.0, start=1.0))
    second = write(tmp_path / "run", steps("scalar", "x", [1], 1.0, start=2.0), seconds=SECONDS + 1)
    (tmp_path / "run" / "notes.txt").write_text("no event file")

    assert read(tmp_path / "run").files == [str(first), str(second)]
    assert read(str(tmp_path / "run")).name == "run"
    assert read(os.fspath(second)).scalars("x").step.tolist() == [1]
    assert read(second).path == str(second)
    assert read(second).name == second.name


def test_a_path_without_a_run_says_what_is_there(tmp_path: Path) -> None:
    """The sentence names the folder, the runs below it, and what to do."""
    empty = tmp_path / "empty"
    (empty / "below").mkdir(parents=True)
    for name in "abcdefg":
        write(tmp_path / "parent" / name / "summary", [])

    with pytest.raises(NoSuchRun) as error:
        read(empty)
    assert str(error.value) == (
        f"no event file at or below {empty}, folders searched: 2; give the summary_dir or log_dir of a run"
    )
    with pytest.raises(NoSuchRun) as error:
        read_run(tmp_path / "parent")
    names = ", ".join(repr(os.path.join(name, "summary")) for name in "abcde")
    assert str(error.value) == (
        f"{tmp_path / 'parent'} holds no event file itself; runs below it: {names} and 2 more; open one of them"
    )
    with pytest.raises(NoSuchRun, match=r"missing does not exist; an event file or the directory of one is expected$"):
        read(tmp_path / "missing")
    other = tmp_path / "model.ckpt"
    other.write_bytes(b"x")
    with pytest.raises(NoSuchRun, match=r"model.ckpt is a text file, and no event file$"):
        read(other)
    other.write_bytes(bytes(100))
    with pytest.raises(NoSuchRun, match=r"model.ckpt is no event file by its name; one is called events\.out\."):
        read(other)


def test_a_tree_is_several_runs(tmp_path: Path) -> None:
    """A directory that holds no event file itself gives the runs below it."""
    for name in "ab":
        write(tmp_path / name, steps("scalar", "x", [1], 1.0, start=0.0))

    runs = read(tmp_path)

    assert isinstance(runs, Runs)
    assert [run.name for run in runs] == ["a", "b"]


def test_runs_and_points_print_as_small_tables(tmp_path: Path) -> None:
    """A run shows its tags by kind, a series its ends."""
    write(
        tmp_path / "r", steps("scalar", "loss", range(10), 0.5, start=0.0) + steps("tensor", "w", [1], 2.0, start=0.0)
    )
    run = read(tmp_path / "r")

    assert repr(run) == (
        f"Run 'r': 1 event file in '{tmp_path / 'r'}'\n  scalar        1  'loss'\n  tensor        1  'w'"
    )
    lines = repr(run.scalars("loss")).splitlines()
    assert lines[0] == "scalar 'loss': 10 points, steps 0 to 9"
    assert [line.split()[0] for line in lines[1:]] == ["0", "1", "2", "...", "7", "8", "9"]
    assert lines[1].split()[-1] == "0.5"
    assert repr(run.tensors("w")).splitlines()[1].endswith("float32 (4,)")


def test_times_out_of_range_are_kept_and_printed(tmp_path: Path) -> None:
    """A wall time that is no date does not disturb reading or printing."""
    times = [math.nan, math.inf, 1e300, -1e300]
    write(tmp_path, [Event.of(step, time, (item("scalar", "x", 1.0),)) for step, time in enumerate(times)])

    scalars = read(tmp_path).scalars("x")

    np.testing.assert_array_equal(scalars.wall_time, np.array(times))
    assert "1e+300 s" in repr(scalars)


def test_reading_loads_neither_mindspore_nor_protobuf(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Importing the reader and the command line, and reading numbers, leaves both out of the process."""
    write(tmp_path, steps("scalar", "x", [0], 1.0, start=1.0))
    code = f"""
import sys
import instrument, instrument.runs.run, instrument.show.cli
assert instrument.read({str(tmp_path)!r}).scalars("x")[0] == 1.0
print(sorted({{"mindspore", "google.protobuf"}} & set(sys.modules)))
"""
    assert run_python(code) == "[]\n"


def test_run_is_a_public_name() -> None:
    """`instrument.Run` is the class that `read` returns."""
    import instrument

    assert instrument.Run is Run


@pytest.mark.parametrize("follow", [False, True])
def test_a_url_is_no_run(follow: bool) -> None:
    """The message says what to do, for a run and for the runs below it."""
    for function in (lambda path: read(path, follow), find_runs):
        with pytest.raises(
            NoSuchRun, match="s3://bucket/run is a URL; runs are read from directories of this machine: "
        ):
            function("s3://bucket/run")
