"""docs/format.md says enough: a reader that was written from it finds what the package recorded, and what it reads."""

from __future__ import annotations

import ast
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import SummaryRecord, read
from instrument.analyse import trace_files
from instrument.codec import event as event_codec
from instrument.codec import landscape as landscape_codec
from instrument.codec import lineage as lineage_codec
from instrument.codec import trace as trace_codec
from instrument.eventfile import crc
from instrument.ringfile import commit
from instrument.values import FAILED, End, Event, Gap, LossSurface, MessageItem, Start, Text, Trace, ValueItem
from tests.oracle import frames, mindspore_files
from tests.runs import build

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip


@pytest.mark.parametrize("path", sorted(Path(frames.__file__).parent.glob("*.py")), ids=lambda path: path.stem)
def test_the_independent_reader_knows_nothing_of_the_package(path: Path) -> None:
    """It imports the standard library and its own parts; for large files NumPy, and a library's checksums."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    allowed = {*sys.stdlib_module_names, *({"numpy", "crc32c"} if path.stem == "large_files" else ())}

    foreign = {name for name in imported if name.partition(".")[0] not in allowed}
    assert [name for name in foreign if name != "tests.oracle" and not name.startswith("tests.oracle.")] == []


def test_checksum_of_the_page_is_that_of_the_package(rng: np.random.Generator) -> None:
    """Also the check value that the page names."""
    data = rng.bytes(257)

    assert frames.crc32c(b"123456789") == 0xE3069283
    assert frames.masked(data) == crc.masked_crc([data])


def _array(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype.startswith("float"):
        return (rng.standard_normal(shape) * 100).astype(dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype, endpoint=True)


def test_values_of_every_kind_and_type_are_read_from_the_pages_words(tmp_path: Path, rng: np.random.Generator) -> None:
    """Scalars exactly, tensors of each type and rank, histograms and images as the package reads them."""
    numbers = {"small": 0.5, "exact": 0.1, "huge": 1e300, "nan": float("nan"), "less": -float("inf")}
    shapes: list[tuple[int, ...]] = [(), (3,), (2, 0), (2, 3, 4)]
    tensors = {f"{dtype}/{len(shape)}": _array(dtype, shape, rng) for dtype in DTYPES for shape in shapes}
    with SummaryRecord(tmp_path, num_process=0) as record:
        for step in (0, 1, 2**40):
            for tag, number in numbers.items():
                record.add_value("scalar", tag, number)
            for tag, array in tensors.items():
                record.add_value("tensor", tag, array)
            record.add_value("histogram", "histogram", np.array([1.0, 2.0, 2.5, np.nan, np.inf]))
            record.add_value("image", "image", rng.random((9, 3, 4, 5), np.float32))
            record.record(step)

    found = mindspore_files.open_run(str(tmp_path))
    run = read(tmp_path)
    assert found.damage == []
    assert sorted(found.points) == sorted((kind, tag) for kind, tags in run.tags().items() for tag in tags)
    for tag, number in numbers.items():
        points = found.points["scalar", tag]
        assert [step for step, _, _ in points] == [0, 1, 2**40]
        assert [time for _, time, _ in points] == run.scalars(tag).wall_time.tolist()
        np.testing.assert_array_equal([value for _, _, value in points], [number] * 3)
    for tag, array in tensors.items():
        one = found.points["tensor", tag][0][2]
        assert (one.dims, one.dtype) == (list(array.shape), array.dtype.name)
        np.testing.assert_array_equal(np.array(one.values, array.dtype).reshape(array.shape), array)
    _compare_histogram(found.points["histogram", "histogram"][0][2], run.histograms("histogram")[0])
    _compare_image(found.points["image", "image"][0][2], run.images("image")[0])


def _compare_histogram(one: mindspore_files.Histogram, ours: Any) -> None:
    assert [left for left, _, _ in one.buckets] == ours.left.tolist()
    assert [width for _, width, _ in one.buckets] == ours.width.tolist()
    assert [count for _, _, count in one.buckets] == ours.counts.tolist()
    assert (one.count, one.nan, one.infinities) == (5, 1, (1, 0))
    assert one.max_min_sum == (2.5, 1.0, 5.5)


def _compare_image(one: mindspore_files.Image, ours: Any) -> None:
    from PIL import Image

    assert (one.height, one.width, one.channels, one.mapping) == (8, 40, 3, "[0, 1] times 255")
    with Image.open(io.BytesIO(one.data)) as picture:
        assert np.asarray(picture)[:4, 5 * 1 : 5 * 2].tobytes() == _cell(ours, 1).tobytes()
        assert not np.asarray(picture)[4:, 5:].any()


def _cell(ours: Any, index: int) -> Any:
    from instrument.codec.image import pixels

    return pixels(ours)[:4, 5 * index : 5 * index + 5]


def test_graph_lineage_and_landscape_are_read_from_the_pages_words(tmp_path: Path) -> None:
    """A node's name, the user's own lineage, and each array of a landscape with its words."""
    node = b"\x12\x03add\x1a\x03Add\x22\x07Default"
    graph = b"\x0a" + bytes([len(node)]) + node + b"\x12\x04main"
    surface = LossSurface(
        "plane", np.array([0.0, 0.1, 0.3]), np.array([1.0, 2.0]), np.array([[1.0, np.nan, 3.0], [4.0, 5.0, np.inf]]),
        np.array([4, 8], np.int64), np.array([[0.1, 0.2], [0.0, 0.0]]), np.array([2.0, 1.0]), np.array([2.1, 1.0]),
        np.array([0.01, 0.0]), np.array([0.9, 0.1]), np.array([0.0, 0.0, 1.0]),
        {"accuracy": np.arange(6.0).reshape(2, 3)},
        {"decomposition": "PCA", "unit": "epoch", "step_per_epoch": 46, "axes": "anchored"},
    )  # fmt: skip
    item = MessageItem("landscape", "plane", landscape_codec.from_surface(surface))
    build.write(tmp_path, [Event(1, 1.0, [MessageItem("graph", "", graph)]), Event(8, 2.0, [item])])
    build.write_lineage(tmp_path, [("custom_lineage_data", lineage_codec.custom_message({"rate": 0.5}))])

    found = mindspore_files.open_run(str(tmp_path))
    assert found.points["graph", "main"] == [(1, 1.0, [("add", "Add", "Default")])]
    ((number, body),) = found.lineage
    info = dict(frames.fields(dict(frames.fields(body))[1]))  # type: ignore[arg-type]
    assert number == 10
    assert dict(frames.fields(info[5])) == {1: b"rate", 2: np.float64(0.5).tobytes()}  # type: ignore[arg-type]
    ((_, _, one),) = found.points["landscape", "plane"]
    np.testing.assert_array_equal(one["grid"][0].values, surface.x)
    np.testing.assert_array_equal(one["grid"][2].values, surface.z.reshape(-1))
    assert (one["numbers"], one["words"], one["details"]) == ([4, 8], ("PCA", "epoch", 46), {"axes": "anchored"})
    assert [part.values for part in one["path"]] == [[0.1, 0.0], [0.2, 0.0], [2.0, 1.0]]
    assert [part.values for part in one["convergence"]] == [[0.0], [0.0], [1.0]]
    assert {name: part.values for name, part in one["arrays"].items()} == {
        "explained": [0.9, 0.1], "true_loss": [2.1, 1.0], "unexplained": [0.01, 0.0],
        "metric/accuracy": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
    }  # fmt: skip


def test_texts_are_read_from_the_pages_words(tmp_path: Path) -> None:
    """Of any number of dimensions; one that is alone has none."""
    several = np.array([["a", "b", "c"], ["ä", "", "e"]], object)
    alone = np.array("word", object)
    build.write(
        tmp_path, [Event(1, 1.0, [ValueItem("text", "t", Text(several)), ValueItem("text", "alone", Text(alone))])]
    )

    found = mindspore_files.open_run(str(tmp_path)).points
    assert found["text", "t"] == [(1, 1.0, mindspore_files.Tensor([2, 3], "string", ["a", "b", "c", "ä", "", "e"]))]
    assert found["text", "alone"] == [(1, 1.0, mindspore_files.Tensor([], "string", ["word"]))]


def test_lineage_file_begins_as_the_page_says(tmp_path: Path) -> None:
    """The recorder's own file: its payloads are lineage events, a version in front or not."""
    with SummaryRecord(tmp_path, num_process=0) as record:
        record.add_value("custom_lineage_data", "custom", lineage_codec.custom_message({"a": 1}))
        record.record(1)

    (path,) = tmp_path.glob("*_lineage")
    payloads = frames.frames(path.read_bytes()).payloads
    assert [sorted(number for number, _ in frames.fields(payload)) for payload in payloads] == [[1, 10]]


def test_gaps_and_pieces_of_a_profile_are_read_from_the_pages_words(tmp_path: Path, rng: np.random.Generator) -> None:
    """A gap with its reason; two raw files, one of several pieces and one empty, of two windows."""
    gap = Gap(3, 5, 9, "no room")
    build.write(tmp_path, [Event(9, 2.0, [commit.gap_item(gap)], {"loss": 1.0})])
    large = rng.bytes(1_100_000)
    pieces = [
        Trace(0, "cpu", 2, "FRAMEWORK/a.txt", at, len(large), large[at : at + trace_codec.CHUNK_BYTES])
        for at in range(0, len(large), trace_codec.CHUNK_BYTES)
    ]
    pieces.append(Trace(1, "instrument", 2, "instrument.names.2.json", 0, 0, b""))
    events = [Event(0, 1.0, [MessageItem("trace", one.name, trace_codec.encode(one))]) for one in pieces]
    path = tmp_path / "events.out.events.profile.1700000000.2.host_MS"
    path.write_bytes(b"".join(build.framed(payload) for one in events for payload in event_codec.encode(one)))

    found = mindspore_files.open_run(str(tmp_path))
    assert found.gaps == [(3, 5, 9, "no room")]
    assert found.raw == {(0, 2, "FRAMEWORK/a.txt"): large, (1, 2, "instrument.names.2.json"): b""}
    assert [len(window.files) for window in trace_files.windows(path)] == [1, 1]


@pytest.mark.parametrize("_again", range(10))
def test_restarts_are_put_together_by_the_pages_rule(tmp_path: Path, rng: np.random.Generator, _again: int) -> None:
    """Starts, restarts without one, files of one time, other writers and repeated steps: as the package has them."""
    clock, series = 1e9, []
    for seconds in range(6):
        device = int(rng.integers(2))
        start = clock - 25.0 * int(rng.integers(2))
        steps = np.sort(rng.integers(0, 60, 20)).tolist()
        tag = ("loss", "rate")[int(rng.integers(2))]
        events = build.steps("scalar", tag, steps, float(seconds), start)
        series.append(build.write(tmp_path, events, build.SECONDS + seconds, device))
        clock += 30.0
    for number in range(1, 7):
        names = {path.name: path.stat().st_size - int(rng.integers(3)) * 10 for path in series if rng.integers(2)}
        events = build.steps("scalar", "loss", [number * 7, 50], 10.0 + number, 1e9 + float(rng.integers(200)))
        begun = Start(f"{number:016x}", number, names)
        end = (None, End(FAILED, "no"))[int(rng.integers(2))]
        seconds, host = build.SECONDS + 10 + number, ("host", "another")[int(rng.integers(2))]
        series.append(build.write(tmp_path, events, seconds, 0, host, begun, end))

    found, run = mindspore_files.open_run(str(tmp_path)), read(tmp_path)
    for tag in run.tags()["scalar"]:
        ours = run.scalars(tag)
        theirs = found.points["scalar", tag]
        assert [step for step, _, _ in theirs] == ours.step.tolist()
        assert [value for _, _, value in theirs] == ours.value.tolist()


@pytest.mark.parametrize("kind", ["flip", "cut", "hole", "zeros"])
def test_recovery_finds_what_the_package_finds(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    """Forty damaged files of each kind: the same points, and the same bytes damaged or unfinished."""
    whole = b"".join(build.encoded(build.steps("scalar", "loss", range(12), 1.0, 1.0)))
    for _ in range(40):
        data, at = bytearray(whole), int(rng.integers(1, len(whole)))
        size = int(rng.integers(1, 60))
        if kind == "flip":
            data[at] ^= int(rng.integers(1, 256))
        elif kind == "cut":
            del data[at:]
        elif kind == "hole":
            del data[at : at + size]
        else:
            data[at : at + size] = bytes(len(data[at : at + size]))
        path = build.write(tmp_path, [])
        path.write_bytes(data)

        found, run = frames.frames(bytes(data)), read(path)
        steps = run.scalars("loss").step.tolist() if "scalar" in run.tags() else []
        events = [mindspore_files.event(payload) for payload in found.payloads]
        assert [one.step for one in events if one.values] == steps
        torn = [] if found.torn is None else [(found.torn, len(data) - found.torn)]
        assert found.damage + torn == [(one.offset, one.bytes_skipped) for one in run.damage]
        assert [one.torn for one in run.damage] == [False] * len(found.damage) + [True] * len(torn)
