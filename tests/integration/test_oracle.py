"""A run with everything in it, read by MindInsight 2.3.1's own code and by ours: no difference in any value.

MindInsight's `raw` view is every event of every file; its `loader` is what the viewer keeps and shows.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument import Run, SummaryRecord, read
from instrument.codec import graph as graph_codec
from instrument.codec.tensor import DTYPE_NUMBERS
from instrument.ringfile.commit import gap_item
from instrument.values import Event, Gap, Histogram, Image, Tensor
from instrument.write.factory import open_sink
from instrument.write.sink import Target
from tests.integration.conftest import ROOT, Script

PYTHON = Path(os.environ.get("INSTRUMENT_ORACLE_PYTHON") or ROOT / ".venv-oracle" / "bin" / "python")
READER = ROOT.parent / "shared" / "oracle" / "mindinsight_read.py"

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason=f"MindInsight's Python is not there: {PYTHON}"),
    pytest.mark.skipif(not READER.exists(), reason=f"the script that drives MindInsight is not there: {READER}"),
]

#: MindInsight's enumeration is older than this type; it shows the numbers all the same.
DATA_TYPES = {"bfloat16": "DT_UNDEFINED"}


@pytest.fixture(scope="module")
def seen(script: Script, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What MindInsight sees of the run with everything in it."""
    return ask(script("rich").directory / "run", tmp_path_factory.mktemp("oracle") / "seen.json")


def ask(directory: Path, out: Path) -> dict[str, Any]:
    """What MindInsight sees in a directory, with its limits on steps and tags raised."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PROTOCOL"))}
    result = subprocess.run(
        [str(PYTHON), str(READER), str(directory), "--limits", "raised", "--out", str(out)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def directory(script: Script) -> Path:
    return script("rich").directory / "run"


def number(value: float) -> Any:
    """As the oracle's JSON has it."""
    if math.isnan(value):
        return "NaN"
    return ("Infinity" if value > 0 else "-Infinity") if math.isinf(value) else value


def single(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def points(run: Run, kind: str) -> list[tuple[str, int, float, Any]]:
    """Tag, step, wall time and value of every point of a kind, superseded ones too, by tag and step."""
    found = []
    for tag in run.tags().get(kind, []):
        found += [(tag, *point) for point in run.points(kind, tag, superseded=True)]  # type: ignore[attr-defined]
    return sorted(found, key=lambda point: point[:3])


def rows(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(found, key=lambda row: (row["tag"], row["step"], row["wall_time"]))


def head(tag: str, step: int, wall_time: float) -> dict[str, Any]:
    return {"tag": tag, "step": step, "wall_time": wall_time}


def buckets(histogram: Histogram) -> list[list[float]]:
    columns = (histogram.left.tolist(), histogram.width.tolist(), histogram.counts.tolist())
    return [list(bucket) for bucket in zip(*columns, strict=True)]


def picture(image: Image) -> dict[str, Any]:
    return {
        "height": image.height, "width": image.width, "colorspace": image.channels, "bytes": len(image.data),
        "sha256": hashlib.sha256(image.data).hexdigest(),
    }  # fmt: skip


def floats(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    with np.errstate(over="ignore"):
        singles = array.reshape(-1).astype("<f4")
    return {"count": array.size, "sha256_f32le": hashlib.sha256(singles.tobytes()).hexdigest()}


def data_type(tensor: Tensor) -> str:
    return DATA_TYPES.get(tensor.dtype) or "DT_" + tensor.dtype.upper()


def only(row: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in expected}


# ---------------------------------------------------------------- every event


def test_mindinsight_takes_the_whole_directory(seen: dict[str, Any], directory: Path) -> None:
    """Every file is read to its end, nothing stalls, nothing is ignored, and not one warning is logged."""
    assert seen["integrity"] == {
        "data_loader_is_integrity": True, "ms_data_loader_is_integrity": True, "parsers_is_integrity": [True, True],
        "stalled": False, "log": [], "log_dropped": 0,
    }  # fmt: skip
    files = sorted(path.name for path in directory.iterdir())
    assert sorted(one["file"] for one in seen["raw"]) == [name for name in files if name.endswith("_MS")]
    assert len(files) == 4  # a collector's two, and one of each recorder
    assert seen["listing"]["ignored"] == []
    for one in seen["raw"]:
        size = (directory / one["file"]).stat().st_size
        assert (one["end"], one["size"]) == ({"offset": size, "why": "eof"}, size)
        assert one["versions"] == ["MindSpore.Event:1"]
        assert one["first_event"]["what"] == "version"
        assert one["other"] == {"none": 1}  # how the recorder ended, which MindInsight passes over


def test_texts_are_skipped(tmp_path: Path) -> None:
    """MindInsight has no place for them: it shows all else of the same events, and logs nothing."""
    with SummaryRecord(tmp_path / "run", num_process=0) as record:
        for step in (1, 2):
            record.add_value("scalar", "loss", 0.5 * step)
            record.add_value("text", "note", f"step {step}")
            record.record(step)
        record.add_value("text", "alone", ["a", "b"])
        record.record(3)
    (one,) = (found := ask(tmp_path / "run", tmp_path / "seen.json"))["raw"]
    assert [(row["tag"], row["step"], row["value"]) for row in rows(one["scalars"])] == [
        ("loss", 1, 0.5),
        ("loss", 2, 1.0),
    ]
    assert one["end"]["why"] == "eof"
    assert found["integrity"]["log"] == []
    run = read(tmp_path / "run")
    assert [(step, text.text) for step, _, text in run.texts("note")] == [(1, "step 1"), (2, "step 2")]
    assert run.texts("alone")[3].array.tolist() == ["a", "b"]


def test_our_reader_takes_it_too(directory: Path) -> None:
    """Ours finds no damage in the same directory."""
    assert read(directory).damage == []


def test_raw_scalars_are_equal(seen: dict[str, Any], directory: Path) -> None:
    """Tag, step, time and float32 value of each number in each file, NaN and infinities too."""
    for one in seen["raw"]:
        ours = points(read(directory / one["file"]), "scalar")
        expected = [{**head(*point), "value": number(single(value))} for *point, value in ours]
        assert rows(one["scalars"]) == expected
    assert sum(len(one["scalars"]) for one in seen["raw"]) > 80


def test_raw_histograms_are_equal(seen: dict[str, Any], directory: Path) -> None:
    """Left, width and count of each bucket, what is not finite, minimum, maximum, sum and count."""
    for one in seen["raw"]:
        found = rows(one["histograms"])
        for row, (tag, step, wall_time, ours) in zip(
            found, points(read(directory / one["file"]), "histogram"), strict=True
        ):
            has_finite = bool(ours.counts.size)
            assert row == {
                **head(tag, step, wall_time),
                "buckets": buckets(ours),
                "nan_count": ours.nan_count,
                "pos_inf_count": ours.positive_infinity_count,
                "neg_inf_count": ours.negative_infinity_count,
                "count": ours.count,
                # Left out of the file where nothing is finite; protobuf's default is 0.
                "max": number(ours.max) if has_finite else 0.0,
                "min": number(ours.min) if has_finite else 0.0,
                "sum": number(ours.sum) if has_finite else 0.0,
            }


def test_raw_images_are_equal(seen: dict[str, Any], directory: Path) -> None:
    """Size, colours and bytes of each picture."""
    for one in seen["raw"]:
        ours = points(read(directory / one["file"]), "image")
        assert rows(one["images"]) == [{**head(*point), **picture(image)} for *point, image in ours]


def test_raw_tensors_are_equal(seen: dict[str, Any], directory: Path) -> None:
    """Dims, dtype and values as float32 of each tensor; MindInsight reads float_data alone."""
    for one in seen["raw"]:
        found = rows(one["tensors"])
        for row, (tag, step, wall_time, tensor) in zip(
            found, points(read(directory / one["file"]), "tensor"), strict=True
        ):
            expected = {
                **head(tag, step, wall_time), "dims": list(tensor.array.shape), "dtype": data_type(tensor),
                "filled": ["float_data"], **floats(tensor.array),
            }  # fmt: skip
            assert only(row, expected) == expected
    dtypes = {row["dtype"] for one in seen["raw"] for row in one["tensors"]}
    assert dtypes == {DATA_TYPES.get(name) or "DT_" + name.upper() for name in DTYPE_NUMBERS}


def test_raw_graph_is_equal(seen: dict[str, Any], directory: Path) -> None:
    """One graph, with as many operators and parameters."""
    (row,) = [graph for one in seen["raw"] for graph in one["graphs"]]
    graph = read(directory).graph
    assert graph is not None
    assert row["name"] == graph_codec.name(graph)
    assert row["nodes"] == len(list(graph_codec.nodes(graph))) > 20
    assert row["parameters"] == len(graph_codec.parameters(graph)) >= 6


def test_raw_landscape_is_whole(seen: dict[str, Any]) -> None:
    """The landscape's points, path and metadata are what was given."""
    (row,) = [landscape for one in seen["raw"] for landscape in one["landscapes"]]
    assert (row["tag"], row["step"], row["intervals"]) == ("landscape_[1, 2, 3]", 1000, [1, 2, 3])
    assert row["metadata"] == {"decomposition": "PCA", "unit": "epoch", "step_per_epoch": 9}
    assert row["landscape"]["z"]["first"] == [0.0, 0.125, 0.25, 0.375, 0.5, 0.625]
    assert row["loss_path"]["x"]["first"] == [0.5, 0.25, 0.125]


# ---------------------------------------------------------------- what the viewer keeps


def shown(seen: dict[str, Any], name: str, suffix: str) -> list[dict[str, Any]]:
    """The rows of a kind, without the suffix that MindInsight puts behind each tag."""
    return rows({**row, "tag": row["tag"].removesuffix(suffix)} for row in seen["loader"][name])


def test_the_viewer_shows_every_scalar(seen: dict[str, Any], directory: Path) -> None:
    """All of them, under their tags, whatever those look like."""
    ours = points(read(directory), "scalar")
    found = [only(row, {**head(*ours[0][:3]), "value": 0}) for row in shown(seen, "scalars", "/scalar")]
    assert found == [{**head(*point), "value": number(single(value))} for *point, value in ours]


def test_the_viewer_shows_every_histogram(seen: dict[str, Any], directory: Path) -> None:
    """Buckets as they are in the file, and none that its container would refuse."""
    found = shown(seen, "histograms", "/histogram")
    for row, (tag, step, wall_time, ours) in zip(found, points(read(directory), "histogram"), strict=True):
        assert (row["tag"], row["step"], row["wall_time"]) == (tag, step, wall_time)
        assert row["buckets"] == buckets(ours)
        assert row["count_in_buckets"] == ours.counts.sum()
        if ours.counts.size:
            assert (row["min"], row["max"]) == (ours.min, ours.max)
        # Over more than all of float64 its own arithmetic for the display overflows.
        assert ("shown_buckets_error" in row) == math.isinf(ours.max - ours.min)


def test_the_viewer_shows_every_image(seen: dict[str, Any], directory: Path) -> None:
    """The same bytes, served as PNG."""
    found = shown(seen, "images", "/image")
    for row, (*point, image) in zip(found, points(read(directory), "image"), strict=True):
        expected = {**head(*point), **picture(image), "mimetype_served": "image/png"}
        assert only(row, expected) == expected


def test_the_viewer_shows_every_tensor(seen: dict[str, Any], directory: Path) -> None:
    """The same dims, dtype and numbers, and its counts of what is not finite."""
    found = shown(seen, "tensors", "/tensor")
    for row, (*point, tensor) in zip(found, points(read(directory), "tensor"), strict=True):
        expected = {**head(*point), "dims": list(tensor.array.shape), "dtype": data_type(tensor), "empty": False}
        expected |= floats(tensor.array)
        assert only(row, expected) == expected
        with np.errstate(over="ignore"):
            singles = tensor.array.astype(np.float32)
        stats = row["stats"]
        assert stats["nan_count"] == np.isnan(singles).sum()
        assert stats["pos_inf_count"] == np.isposinf(singles).sum()
        assert stats["neg_inf_count"] == np.isneginf(singles).sum()


def test_the_viewer_shows_the_graph_and_the_landscape(seen: dict[str, Any]) -> None:
    """The graph with its leaves by type, and the landscape as one of an interval."""
    assert seen["loader"]["graphs"]
    for graph in seen["loader"]["graphs"]:
        assert graph["leaf_nodes"] > 20
        assert {"Conv2D", "MatMul"} <= set(graph["node_types"])
    (landscape,) = seen["loader"]["landscapes"]
    assert (landscape["kind"], landscape["intervals"]) == ("interval", [1, 2, 3])


# ---------------------------------------------------------------- gaps


def test_gaps_are_passed_over(tmp_path: Path) -> None:
    """Before, between and behind values, MindInsight sees the others and says nothing."""
    sink = open_sink(Target(str(tmp_path / "run")), 0)
    gap = gap_item(Gap(3, 5, 7, "No space left on device"))
    for step in (0, 8):
        sink.write(Event(step, 100.0 + step, [gap], {"loss": float(step)}))
        sink.write(Event(step + 1, 101.0 + step, [gap]))
    sink.close()
    seen = ask(tmp_path / "run", tmp_path / "seen.json")
    assert seen["integrity"]["log"] == []
    assert not seen["integrity"]["stalled"]
    (one,) = seen["raw"]
    size = os.path.getsize(sink.path)
    assert one["end"] == {"offset": size, "why": "eof"}
    assert [(row["tag"], row["step"], row["value"]) for row in one["scalars"]] == [("loss", 0, 0.0), ("loss", 8, 8.0)]
    shown_scalars = shown(seen, "scalars", "/scalar")
    assert [(row["tag"], row["step"], row["value"]) for row in shown_scalars] == [("loss", 0, 0.0), ("loss", 8, 8.0)]
    assert read(tmp_path / "run").gaps == [Gap(3, 5, 7, "No space left on device")] * 4


# ---------------------------------------------------------------- lineage


def test_the_lineage_is_equal(seen: dict[str, Any], directory: Path) -> None:
    """Training, evaluation, dataset graph and the user's own values, as MindInsight's lineage page has them."""
    ours, theirs = read(directory).lineage, seen["lineage"]["object"]
    assert "error" not in seen["lineage"]
    assert all(one["end"] == "eof" for one in seen["lineage"]["events"])
    for part in ("hyper_parameters", "algorithm", "train_dataset"):
        assert set(theirs[part]) == set(ours["train"][part]) - {"last_learning_rate"}  # a field that it does not know
        for name, value in theirs[part].items():
            expected = ours["train"][part][name]
            assert value == (pytest.approx(expected, rel=1e-6) if isinstance(value, float) else expected), name
    assert json.loads(theirs["model"]["path"]) == ours["train"]["model"]["path"] == {"ckpt": None}
    assert theirs["metric"] == ours["eval"]["metric"]
    assert theirs["valid_dataset"] == ours["eval"]["valid_dataset"] == {"valid_dataset_size": 96}
    assert ours["custom"] == {"data": "digits", "scale": 0.0625}
    assert theirs["user_defined"] == {**ours["custom"], "ran": ours["ran"]}


def test_the_dataset_graph_is_equal(seen: dict[str, Any], directory: Path) -> None:
    """Operators and their parameters, from the last to the source."""
    ours: Any = read(directory).lineage["dataset"]
    theirs: Any = seen["lineage"]["object"]["dataset_graph"]
    depth = 0
    while True:
        scalars = {key: value for key, value in theirs.items() if isinstance(value, (str, int, float))}
        assert scalars == {key: ours[key] for key in scalars}
        names = [operation["tensor_op_name"] for operation in theirs.get("operations") or []]
        assert names == [operation["tensor_op_name"] for operation in ours.get("operations", [])]
        depth += 1
        if not theirs["children"]:
            break
        (theirs,), (ours,) = theirs["children"], ours["children"]
    assert depth == 5
