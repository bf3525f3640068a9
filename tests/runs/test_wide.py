"""Events of many tags, in any form and order: what is read equals what protobuf's own messages hold."""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import read
from instrument.codec import scalar, tensorboard_outline, wire
from instrument.codec import tensorboard as tb
from instrument.codec.outline import mindspore
from instrument.runs import verify
from instrument.runs.columnar import Layout
from instrument.runs.points import Scalars, merge, merging
from instrument.values import SAMPLED
from tests import protobuf
from tests.oracle import frames as oracle
from tests.runs.build import SECONDS, framed

FILES = {
    "mindspore": f"events.out.events.summary.{SECONDS}.0.host_MS",
    "tensorboard": f"events.out.tfevents.{SECONDS}.host.1.0",
}
NUMBER = {"mindspore": scalar.NUMBER, "tensorboard": tb.SIMPLE_VALUE}
ODD = [math.nan, math.inf, -math.inf, 0.0, -0.0, 5e-324, 1e300, 0.1]

#: Of one file: (tag, step, wall time, number) in file order; tags and steps of histograms.
Facts = tuple[list[tuple[str, int, float, float]], list[tuple[str, int]]]


def number(dialect: str, tag: str, value: float, exact: bool = False, further: bytes = b"") -> bytes:
    """The `value` field of a summary, as all recorders write it; with `exact` the double beside it, as ours does."""
    body = (
        wire.delimited(1, tag.encode())
        + wire.key(NUMBER[dialect], wire.FIXED32)
        + struct.pack("<f", scalar.to_float32(value))
    )
    return wire.delimited(1, body + (wire.double(100, value) if exact else b"") + further)


def tensor_number(tag: str, value: float, first: bool, plugin: bytes = b"scalars") -> bytes:
    """A number in TensorBoard's new style; the metadata may stand in the first value only."""
    tensor = wire.integer(tb.DTYPE, tb.DT_FLOAT) + wire.delimited(tb.SHAPE, b"")
    tensor += wire.delimited(tb.FLOAT_VAL, struct.pack("<f", scalar.to_float32(value)))
    metadata = wire.delimited(tb.METADATA, wire.delimited(1, wire.delimited(1, plugin)))
    return wire.delimited(1, wire.delimited(1, tag.encode()) + wire.delimited(tb.TENSOR, tensor) + metadata * first)


def histogram(dialect: str, tag: str) -> bytes:
    if dialect == "mindspore":
        body = wire.integer(2, 1) + wire.double(3, 1.0) + wire.double(4, 1.0) + wire.double(5, 1.0)
        return wire.delimited(1, wire.delimited(1, tag.encode()) + wire.delimited(9, body))
    body = wire.double(1, 1.0) + wire.double(2, 1.0) + wire.double(3, 1.0) + wire.double(4, 1.0)
    body += wire.delimited(6, struct.pack("<2d", 1.0, 2.0)) + wire.delimited(7, struct.pack("<2d", 1.0, 0.0))
    return wire.delimited(1, wire.delimited(1, tag.encode()) + wire.delimited(5, body))


def event(step: int, wall_time: float, values: bytes, further: bytes = b"") -> bytes:
    head = wire.double(1, wall_time) + (wire.integer(2, step) if step else b"")
    return framed([head + wire.delimited(5, values) + further])


class _Slow:
    """Reads a file frame by frame and field by field, by the independent reader's functions."""

    def __init__(self, dialect: str) -> None:
        self._number = NUMBER[dialect]
        self._histogram = 9 if dialect == "mindspore" else 5
        self._plugins: dict[str, bytes] = {}
        #: Steps of tensors whose meaning was said in a value that is damaged.
        self.tensor_steps: list[int] = []

    def facts(self, path: Path) -> Facts:
        numbers: list[tuple[str, int, float, float]] = []
        histograms: list[tuple[str, int]] = []
        events = [list(oracle.fields(payload)) for payload in oracle.frames(path.read_bytes()).payloads]
        values = [
            [
                dict(oracle.fields(value))
                for number, summary in event
                if number == 5
                for at, value in oracle.fields(summary)
                if at == 1
            ]
            for event in events
        ]
        for value in itertools.chain.from_iterable(values):
            self._learn(value)
        for event, held in zip(events, values, strict=True):
            head = dict(event)
            step, wall_time = oracle.signed(head.get(2, 0)), oracle.double(head[1]) if 1 in head else 0.0
            for value in held:
                self._take(value, step, wall_time, numbers, histograms)
        return numbers, histograms

    def _learn(self, value: dict[int, Any]) -> None:
        """Note the plugin of a tag: it holds for all its values, those before it too, as the first may be damaged."""
        if tb.METADATA in value and self._number == tb.SIMPLE_VALUE:
            self._plugins.setdefault(_tag(value), value[tb.METADATA])

    def _take(self, value: dict[int, Any], step: int, wall_time: float, numbers: Any, histograms: Any) -> None:
        tag = _tag(value)
        if self._number in value:
            form, content = ("<d", value[100]) if 100 in value else ("<f", value[self._number])
            numbers.append((tag, step, wall_time, struct.unpack(form, content)[0]))
        elif self._histogram in value:
            histograms.append((tag, step))
        elif tb.TENSOR in value and b"scalars" not in self._plugins.get(tag, b""):
            self.tensor_steps.append(step)
        elif tb.TENSOR in value:
            numbers.append(
                (tag, step, wall_time, struct.unpack("<f", dict(oracle.fields(value[tb.TENSOR]))[tb.FLOAT_VAL])[0])
            )


def _values(event: list[tuple[int, Any]]) -> list[dict[int, Any]]:
    summaries = [content for number, content in event if number == 5]
    return [dict(oracle.fields(value)) for one in summaries for at, value in oracle.fields(one) if at == 1]


def _tag(value: dict[int, Any]) -> str:
    return str(value[1], "utf-8", "surrogateescape")


def compare(folder: Path, dialect: str) -> int:
    """Compare what is read with the facts of the slow way; return how many numbers there are."""
    slow = _Slow(dialect)
    numbers, histograms = slow.facts(folder / FILES[dialect])
    by_tag: dict[str, list[tuple[int, float, float]]] = {}
    for tag, *point in numbers:
        by_tag.setdefault(tag, []).append(tuple(point))  # type: ignore[arg-type]
    run = read(folder)
    assert set(run.tags().get("scalar", [])) == set(by_tag)
    for tag, points in by_tag.items():
        last = {step: index for index, (step, _, _) in enumerate(points)}
        standing = [point for index, point in enumerate(points) if tag.startswith(SAMPLED) or last[point[0]] == index]
        # Ordered by step, then by time; equal ones stay in file order.
        expected = sorted(standing, key=lambda point: (point[0], point[1]))
        series = run.scalars(tag)
        assert series.step.tolist() == [step for step, _, _ in expected], tag
        assert series.wall_time.tolist() == [wall_time for _, wall_time, _ in expected], tag
        np.testing.assert_array_equal(series.value, [value for _, _, value in expected], tag)
        everything = sorted(points, key=lambda point: (point[0], point[1]))
        np.testing.assert_array_equal(
            run.scalars(tag, superseded=True).value, [value for _, _, value in everything], tag
        )
    found = {(tag, step) for tag in run.tags().get("histogram", []) for step in run.histograms(tag).step.tolist()}
    assert found == set(histograms)
    steps = [step for _, step, _, _ in numbers] + [step for _, step in histograms] + slow.tensor_steps
    extent = run.extent()
    assert (extent and extent[:2]) == ((min(steps), max(steps)) if steps else None)
    return len(numbers)


def names(rng: np.random.Generator, count: int) -> list[str]:
    """Tags of many lengths, some the beginnings of others, some not ASCII, some longer than a byte counts."""
    heads = ["loss", "layer_{}/weight", "grad_norm/{}", "e/{}/é", "x" * 60 + "{}", "y" * 118 + "{}", "z" * 140 + "{}"]
    tags = {heads[int(rng.integers(len(heads)))].format(index) for index in range(count)}
    return sorted(tags | {"a" * index for index in range(int(rng.integers(4)))})


def events_of(rng: np.random.Generator, dialect: str) -> Iterator[bytes]:
    """Events of one shape, which is drawn: wide, one event a value, or anything between."""
    tags = names(rng, int(rng.choice([1, 2, 7, 40, 150])))
    steps, first = (
        min(int(rng.choice([1, 3, 20, 150])), 1 + 6000 // len(tags)),
        int(rng.choice([0, 1, 120, 16_380, 2**40])),
    )
    one_each, subsets, shuffled, doubled = (bool(rng.random() < 0.4) for _ in range(4))
    exact, odd = float(rng.choice([0.0, 0.0, 0.3, 1.0])), float(rng.choice([0.0, 0.1]))
    kinds = float(rng.choice([0.0, 0.0, 0.02])), float(rng.choice([0.0, 0.0, 0.3]))
    inner = wire.integer(77, 5) * bool(rng.random() < 0.2)
    outer = [b"", wire.delimited(90, b"abc") + wire.double(15, 1.0), wire.integer(12, 1 << 40)][int(rng.integers(3))]
    new_style = dialect == "tensorboard" and rng.random() < 0.4
    seen: set[str] = set()
    for step in range(first, first + steps):
        chosen = [tag for tag in tags if not subsets or rng.random() < 0.7]
        if shuffled:
            rng.shuffle(chosen)
        values = []
        for tag in chosen * (1 + (doubled and rng.random() < 0.1)):
            value = float(rng.choice(ODD)) if rng.random() < odd else float(rng.normal())
            if rng.random() < kinds[0]:
                values.append(histogram(dialect, f"h/{tag}"))
            if new_style:
                values.append(tensor_number(tag, value, tag not in seen or rng.random() < kinds[1]))
            else:
                further = wire.integer(99, int(rng.integers(1 << 20))) if rng.random() < kinds[1] else inner
                values.append(number(dialect, tag, value, rng.random() < exact, further))
            seen.add(tag)
        groups = [[value] for value in values] if one_each else [values]
        for group in groups:
            yield event(step, 1e9 + step + float(rng.random()), b"".join(group), outer if rng.random() < 0.8 else b"")


def write(folder: Path, dialect: str, frames: list[bytes]) -> Path:
    path = folder / FILES[dialect]
    path.write_bytes(b"".join(frames))
    return path


@pytest.mark.parametrize("dialect", FILES)
def test_any_mixture_of_shapes_is_read_as_the_slow_way_reads_it(
    tmp_path: Path, rng: np.random.Generator, dialect: str
) -> None:
    """Files of several shapes one after the other, each with its own tags, orders, forms and extra fields."""
    total = 0
    for _ in range(12):
        write(tmp_path, dialect, [one for _ in range(int(rng.integers(1, 4))) for one in events_of(rng, dialect)])
        total += compare(tmp_path, dialect)
    assert total > 1000


@pytest.mark.parametrize("dialect", FILES)
def test_damage_anywhere_takes_no_more_than_its_frames(tmp_path: Path, rng: np.random.Generator, dialect: str) -> None:
    """Bits are flipped and bytes cut out of files of all shapes: what is whole is read, and nothing else."""
    for _ in range(12):
        frames = [one for _ in range(2) for one in events_of(rng, dialect)]
        data = bytearray(b"".join(frames))
        for _ in range(int(rng.integers(1, 6))):
            at = int(rng.integers(len(data)))
            if rng.random() < 0.7:
                data[at] ^= 1 << int(rng.integers(8))
            else:
                del data[at : at + int(rng.integers(1, 200))]
        path = write(tmp_path, dialect, [bytes(data)])
        compare(tmp_path, dialect)
        report = verify.check(str(path))
        assert report.damage or bytes(data) == b"".join(frames)


@pytest.mark.parametrize("dialect", FILES)
def test_a_followed_file_equals_one_that_is_read_at_once(
    tmp_path: Path, rng: np.random.Generator, dialect: str
) -> None:
    """The file grows by any number of bytes at a time."""
    for _ in range(6):
        data = b"".join(events_of(rng, dialect))
        path = write(tmp_path, dialect, [b""])
        run = read(tmp_path, follow=True)
        end = 0
        while end < len(data):
            end = min(len(data), end + int(rng.integers(1, 1 + len(data) // 3)))
            path.write_bytes(data[:end])
            run.refresh()
        fresh = read(tmp_path)
        assert run.tags() == fresh.tags()
        for tag in fresh.tags().get("scalar", []):
            followed, whole = run.scalars(tag, superseded=True), fresh.scalars(tag, superseded=True)
            assert followed.step.tolist() == whole.step.tolist()
            np.testing.assert_array_equal(followed.value, whole.value)


@pytest.mark.parametrize("is_damaged", [False, True])
def test_steps_that_come_round_in_a_long_file(tmp_path: Path, rng: np.random.Generator, is_damaged: bool) -> None:
    """An event a value over several megabytes: other tags now and then, steps that grow by a byte, a flipped bit."""
    tags = [f"layer_{index}/{'w' * int(rng.integers(8))}" for index in range(150)]
    frames = []
    for step in range(20, 320):
        for tag in tags:
            frames.append(event(step, 1e9 + float(rng.random()), number("tensorboard", tag, float(rng.normal()))))
        if step % 37 == 0:
            frames.append(event(step, 1e9, number("tensorboard", "eval", 1.0)))
    data = bytearray(b"".join(frames))
    if is_damaged:
        data[int(rng.integers(len(data)))] ^= 0x10
    write(tmp_path, "tensorboard", [bytes(data)])
    assert len(data) > 2_000_000
    assert compare(tmp_path, "tensorboard") >= 44_000


@pytest.mark.parametrize("dialect", FILES)
def test_values_that_look_like_the_beginnings_of_others(tmp_path: Path, dialect: str) -> None:
    """Tags and numbers that hold the bytes of a value's head change nothing."""
    head = wire.delimited(1, wire.delimited(1, b"fake") + b"\x1d\0\0\0\0").decode("latin-1")
    tags = ["\n\x05\n\x01a", head, "\n" * 30, "a", "b\n\x09\n\x02xy\x1d1234"]
    bits = struct.unpack("<f", b"\x0a\x09\x0a\x02")[0]
    frames = [
        event(step, 1.0 + step, b"".join(number(dialect, tag, bits) for tag in tags[step % 3 :])) for step in range(200)
    ]
    write(tmp_path, dialect, frames)
    assert compare(tmp_path, dialect) == 67 * 5 + 67 * 4 + 66 * 3


@pytest.mark.parametrize("dialect", FILES)
def test_series_of_one_file_equal_those_that_are_merged(tmp_path: Path, rng: np.random.Generator, dialect: str) -> None:
    """Where steps ascend a series is a view of the file's numbers; it has all that merging would have made of it."""
    views = 0
    for _ in range(6):
        write(tmp_path, dialect, list(events_of(rng, dialect)))
        run = read(tmp_path)
        for tag in run.tags().get("scalar", []):
            views += run.contents.files[0].numbers.series(tag) is not None
            for superseded in (False, True):
                parts = run.contents.parts(("scalar", tag))
                merged = merge(Scalars, "scalar", tag, parts, merging(parts, tag.startswith(SAMPLED), superseded))
                series = run.scalars(tag, superseded)
                for name in ("step", "wall_time", "superseded", "writer_index", "value"):
                    expected, column = getattr(merged, name), getattr(series, name)
                    assert column.dtype == expected.dtype
                    np.testing.assert_array_equal(column, expected)
                assert series.writers == merged.writers
                assert list(series.by_writer()) == list(merged.by_writer())
                assert repr(list(series)) == repr(list(merged))
    assert views


def test_a_series_does_not_change_another(tmp_path: Path) -> None:
    """Series share steps and times, which are read-only; numbers are those of the series alone."""
    values = [b"".join(number("mindspore", tag, step / 2) for tag in "ab") for step in range(9)]
    write(tmp_path, "mindspore", [event(step, 1e9 + step, content) for step, content in enumerate(values, 1)])
    run = read(tmp_path)
    series = run.scalars("a")
    series.value[:] = 7.0
    assert run.scalars("a").value.tolist() == run.scalars("b").value.tolist() == [step / 2 for step in range(9)]
    with pytest.raises(ValueError, match="read-only"):
        series.step[0] = 5
    with pytest.raises(AttributeError):
        series.step = np.arange(9)  # type: ignore[misc]


@pytest.mark.parametrize("dialect", FILES)
def test_events_of_the_same_tags_are_one_table_whatever_their_steps(tmp_path: Path, dialect: str) -> None:
    """Steps of no byte, of one and of two; tags that have nothing else are views of the table."""
    frames = [
        event(step, 1e9 + step, b"".join(number(dialect, f"layer_{tag}", step / 2) for tag in range(100)))
        for step in range(130)
    ]
    write(tmp_path, dialect, [*frames[:20], *frames[126:129]])
    assert compare(tmp_path, dialect) == 2300
    assert read(tmp_path).contents.files[0].numbers.series("layer_7") is not None


@pytest.mark.parametrize("dialect", FILES)
def test_layouts_found_at_once_equal_those_found_field_by_field(rng: np.random.Generator, dialect: str) -> None:
    """Of any event that is plain numbers only: the same tags, places, sizes and bits that agree."""
    count = 0
    key = NUMBER[dialect] << 3 | wire.FIXED32
    for _ in range(30):
        for content in itertools.islice(events_of(rng, dialect), 5):
            (payload,) = oracle.frames(content).payloads
            layout = Layout.of_wide(memoryview(payload), key)
            outline = (
                tensorboard_outline.outline(memoryview(payload), tensorboard_outline.Plugins())
                if dialect == "tensorboard"
                else mindspore(memoryview(payload))
            )
            if layout is None:
                continue
            count += 1
            expected = Layout.of_outline(outline)
            assert outline.is_regular
            assert layout.tags == expected.tags
            assert layout.starts.tolist() == expected.starts.tolist()
            assert layout.sizes.tolist() == expected.sizes.tolist()
            assert layout.mask(len(payload)).tobytes() == expected.mask(len(payload)).tobytes()
    assert count


def test_protobuf_reads_the_same(tmp_path: Path, rng: np.random.Generator) -> None:
    """MindSpore's own message classes give the same numbers for a wide file."""
    path = write(tmp_path, "mindspore", list(events_of(rng, "mindspore")))
    event_class = protobuf.message_class("Event")
    count = 0
    for payload in oracle.frames(path.read_bytes()).payloads:
        message = event_class.FromString(payload)
        count += sum(1 for value in message.summary.value if value.HasField("scalar_value"))
    assert count == compare(tmp_path, "mindspore")


def cost(run: Callable[[], object]) -> float:
    import time

    best = math.inf
    for _ in range(3):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize("one_each", [False, True])
def test_the_time_grows_with_the_points(tmp_path: Path, one_each: bool) -> None:
    """Four times as many tags take four times as long, and not sixteen times; all series, extents and counts too."""
    times = []
    for tags in (500, 2000):
        folder = tmp_path / str(tags)
        folder.mkdir()
        fields = [number("tensorboard", f"layer_{tag}/norm", float(tag)) for tag in range(tags)]
        groups = [[field] for field in fields] if one_each else [fields]
        write(folder, "tensorboard", [event(step, step, b"".join(group)) for step in range(10) for group in groups])

        def everything(folder: Path = folder) -> None:
            run = read(folder)
            for tag in run.tags()["scalar"]:
                run.scalars(tag).by_writer()
            run.extent(), run.contents.superseded(), run.contents.nonfinite(), repr(run)

        times.append(cost(everything))
    assert times[1] < 9 * times[0]


def test_what_a_tag_means_may_stand_behind_its_first_values(tmp_path: Path) -> None:
    """Where the value with the metadata is damaged, values before the next one that has it are numbers, too."""
    frames = [event(step, 1e9 + step, tensor_number("loss", step / 2, step == 3)) for step in range(1, 5)]
    path = write(tmp_path, "tensorboard", frames)
    assert read(tmp_path).scalars("loss").value.tolist() == [0.5, 1.0, 1.5, 2.0]
    assert read(tmp_path).tags() == {"scalar": ["loss"]}
    path.write_bytes(b"".join(frames[:2]))
    run = read(tmp_path)
    assert run.tags() == {"tensor": ["loss"]}
    path.write_bytes(b"".join(frames))
    run.refresh()
    assert run.tags() == {"scalar": ["loss"]}
    assert run.scalars("loss").step.tolist() == [1, 2, 3, 4]


def test_a_plugin_without_a_name_means_nothing(tmp_path: Path) -> None:
    """A tensor whose metadata names no plugin stays a tensor, however often that is said."""
    write(tmp_path, "tensorboard", [event(step, 1e9 + step, tensor_number("loss", 1.0, True, b"")) for step in (1, 2)])
    assert read(tmp_path).tags() == {"tensor": ["loss"]}


def test_what_tags_mean_may_be_said_late_and_one_after_the_other(tmp_path: Path) -> None:
    """In a file of several megabytes the metadata of each tag stands somewhere behind its first value."""
    tags = [f"metric_{index}" for index in range(3)]
    frames = [
        event(step, 1e9 + step, tensor_number(tag, step / 2, step in (5, 9_000 + 3_000 * index)))
        for step in range(1, 20_000)
        for index, tag in enumerate(tags)
        if step > 5 or index
    ]
    write(tmp_path, "tensorboard", frames)
    assert sum(map(len, frames)) > 3_000_000
    run = read(tmp_path)
    assert run.tags() == {"scalar": tags}
    assert [len(run.scalars(tag)) for tag in tags] == [19_994, 19_999, 19_999]
