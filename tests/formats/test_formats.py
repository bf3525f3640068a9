"""`instrument export`."""

from __future__ import annotations

import base64
import csv
import json
import math
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from instrument.codec import image
from instrument.errors import InstrumentError
from instrument.facts.selection import TagFilter
from instrument.formats import export
from instrument.formats.arrays import png
from instrument.formats.text import _pieces
from instrument.runs.run import Run, read_run
from instrument.show.cli import main
from instrument.values import ArrayItem, Event, Image
from tests.runs.build import framed, item, steps, write
from tests.show.runs import EVIL, START, every_kind

FLOAT32_TENTH = 0.10000000149011612


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return read_run(every_kind(tmp_path / "run"))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_csv_has_every_point_in_full(run: Run, tmp_path: Path) -> None:
    """All digits, NaN and the infinities in words, nothing for what is missing; a file for each kind."""
    written, left_out = export(run, "csv", tmp_path / "out")
    assert [(one.file, one.kind, one.points) for one in written] == [
        (str(tmp_path / "out" / name), name.partition(".")[0], points)
        for name, points in (
            ("scalar.csv", 3), ("image.csv", 2), ("tensor.csv", 2), ("histogram.csv", 1), ("graph.csv", 1),
            ("lineage.json", 2),
        )
    ]  # fmt: skip
    assert left_out == ["1 superseded point: --superseded exports them too"]
    assert (
        (tmp_path / "out" / "scalar.csv").read_text()
        == """\
tag,device,host,step,wall_time,superseded,value
loss,0,host,1,1700000000.0,false,0.1
loss,0,host,2,1700000001.0,false,NaN
loss,0,host,3,1700000060.0,false,0.25
"""
    )
    first, second = table(tmp_path / "out" / "tensor.csv")
    assert (first["dtype"], first["shape"], first["error"]) == ("float32", "[2, 3]", "")
    assert first["values"] == f'[{FLOAT32_TENTH}, "NaN", "-Infinity", 4.0, 5.0, 6.0]'
    assert (second["dtype"], second["shape"], second["values"]) == ("uint64", "[1]", "[9223372036854775809]")
    (histogram,) = table(tmp_path / "out" / "histogram.csv")
    assert [histogram[name] for name in ("count", "min", "max", "sum", "nan_count", "positive_infinity_count")] == [
        "5", "1.0", "3.0", "6.0", "1", "1",
    ]  # fmt: skip
    assert sum(json.loads(histogram["counts"])) == 3
    picture = table(tmp_path / "out" / "image.csv")[0]
    assert base64.b64decode(picture["data"]) == run.images("i")[2].data
    assert base64.b64decode(table(tmp_path / "out" / "graph.csv")[0]["data"]) == run.graphs("net").values[0].data


def test_superseded_points_come_when_asked_for(run: Run, tmp_path: Path) -> None:
    """With their mark."""
    _, left_out = export(run, "csv", tmp_path / "out", wanted=TagFilter(["loss"]), superseded=True)
    assert [(row["value"], row["superseded"]) for row in table(tmp_path / "out" / "scalar.csv")] == [
        ("0.1", "false"), ("NaN", "false"), ("-Infinity", "true"), ("0.25", "false"),
    ]  # fmt: skip
    assert left_out == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["lineage.json", "scalar.csv"]


def test_json_is_standard_and_has_a_point_a_line(run: Run, tmp_path: Path) -> None:
    """Numbers as numbers, what JSON has no number for as texts, what is missing as null."""
    export(run, "json", tmp_path / "out")
    text = (tmp_path / "out" / "scalar.json").read_text()
    assert text.splitlines()[1] == (
        '{"tag": "loss", "device": 0, "host": "host", "step": 1, "wall_time": 1700000000.0, "superseded": false, '
        '"value": 0.1},'
    )
    assert [row["value"] for row in json.loads(text)] == [0.1, "NaN", 0.25]
    tensors = json.loads((tmp_path / "out" / "tensor.json").read_text())
    assert tensors[0]["values"] == [FLOAT32_TENTH, "NaN", "-Infinity", 4.0, 5.0, 6.0]
    assert (tensors[1]["values"], tensors[1]["error"]) == ([2**63 + 1], None)
    lineage = json.loads((tmp_path / "out" / "lineage.json").read_text())
    assert lineage["custom"] == {"score": "NaN", "seed": 1}
    assert lineage["train"]["hyper_parameters"]["optimizer"] == "Adam"


def test_npy_has_tables_and_arrays(run: Run, tmp_path: Path) -> None:
    """A table of points for each tag; tensors, pixels and buckets as they are."""
    _, left_out = export(run, "npy", tmp_path / "out")
    out = tmp_path / "out"

    loss = np.load(out / "scalar" / "loss.npy")
    assert loss["step"].tolist() == [1, 2, 3]
    np.testing.assert_array_equal(loss["value"], [0.1, math.nan, 0.25])
    tensors = np.load(out / "tensor" / "w%2Fa" / "points.npy")
    assert tensors["file"].tolist() == ["1.npy", "2.npy"]
    for step in (1, 2):
        array = np.load(out / "tensor" / "w%2Fa" / f"{step}.npy")
        np.testing.assert_array_equal(array, run.tensors("w/a")[step], strict=True)
    pictures = np.load(out / "image" / "i" / "points.npy")
    assert pictures[["step", "height", "width", "channels"]].tolist() == [(2, 2, 2, 1), (3, 2, 2, 1)]
    np.testing.assert_array_equal(np.load(out / "image" / "i" / "2.npy"), np.full((2, 2, 1), 9, np.uint8))
    histogram = run.histograms("h")[2]
    buckets = np.load(out / "histogram" / "h" / "2.npy")
    for name in ("left", "width", "counts"):
        np.testing.assert_array_equal(buckets[name], getattr(histogram, name), strict=True)
    assert np.load(out / "histogram" / "h" / "points.npy")[["count", "sum", "nan_count"]].tolist() == [(5, 6.0, 1)]
    assert left_out[0] == "1 graph tag: they are no arrays; csv, json and parquet hold them"


def test_two_points_of_a_step_are_two_files(tmp_path: Path) -> None:
    """Of two devices."""
    for device in (0, 1):
        write(tmp_path / "run", steps("tensor", "t", [7], float(device), start=1.0), device=device)
    export(read_run(tmp_path / "run"), "npy", tmp_path / "out")
    arrays = [np.load(tmp_path / "out" / "tensor" / "t" / name)[0] for name in ("7.npy", "7~2.npy")]
    assert arrays == [0.0, 1.0]


def test_png_keeps_the_bytes(run: Run, tmp_path: Path) -> None:
    """A file for each step of each tag; what is no picture is told."""
    written, left_out = export(run, "png", tmp_path / "out")
    assert [(one.tag, one.points) for one in written] == [("i", 2)]
    for step in (2, 3):
        assert (tmp_path / "out" / "i" / f"{step}.png").read_bytes() == run.images("i")[step].data
    assert left_out[:3] == [
        "1 scalar tag: they are no pictures",
        "1 tensor tag: they are no pictures",
        "1 histogram tag: they are no pictures",
    ]


def test_parquet_has_every_point(run: Run, tmp_path: Path) -> None:
    """Typed columns; NaN is no null; a tensor's bytes become the array again."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    export(run, "parquet", tmp_path / "out")

    def columns(kind: str) -> dict[str, list[object]]:
        found: dict[str, list[object]] = parquet.read_table(tmp_path / "out" / f"{kind}.parquet").to_pydict()
        return found

    scalars = columns("scalar")
    assert scalars["step"] == [1, 2, 3]
    assert str(scalars["value"]) == "[0.1, nan, 0.25]"
    assert scalars["superseded"] == [False] * 3
    tensors = columns("tensor")
    for at, step in enumerate((1, 2)):
        array = np.frombuffer(tensors["values"][at], tensors["values_dtype"][at]).reshape(tensors["shape"][at])  # type: ignore[call-overload]
        np.testing.assert_array_equal(array, run.tensors("w/a")[step], strict=True)
    assert columns("image")["data"][0] == run.images("i")[2].data
    assert columns("histogram")["counts"] == [run.histograms("h")[2].counts.tolist()]
    assert columns("histogram")["error"] == [None]


def test_parquet_without_pyarrow_is_one_sentence(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the extra, and leaves no folder behind."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert main(["export", run.path, "--to", "parquet", "-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr() == (
        "",
        "instrument: export to parquet needs pyarrow, which cannot be imported "
        "(import of pyarrow halted; None in sys.modules): pip install 'pyarrow<26'\n",
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("to", ["csv", "json", "npy", "parquet"])
def test_a_damaged_value_is_told(tmp_path: Path, to: str) -> None:
    """The points around it are there, and the reason stands in its row or is told."""
    if to == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = write(tmp_path / "run", steps("tensor", "w", [0, 2], 1.0, start=10.0))
    value = b"\x0a\x01w" + b"\x42\x04\x08\x05\x10\x0b"  # dims [5], float32, no data
    summary = b"\x0a" + bytes([len(value)]) + value
    payload = b"\x09" + bytes(8) + b"\x10\x01" + b"\x2a" + bytes([len(summary)]) + summary
    path.write_bytes(path.read_bytes() + framed([payload]))

    _, left_out = export(read_run(tmp_path / "run"), to, tmp_path / "out")

    reason = "tensor 'w' at step 1: a tensor"
    out = tmp_path / "out"
    if to == "npy":
        assert np.load(out / "tensor" / "w" / "points.npy")["file"].tolist() == ["0.npy", "", "2.npy"]
        assert left_out[0].startswith(reason)
        return
    if to == "csv":
        rows = [(row["values"], row["error"]) for row in table(out / "tensor.csv")]
    elif to == "json":
        rows = [(row["values"] or "", row["error"] or "") for row in json.loads((out / "tensor.json").read_text())]
    else:
        found = pytest.importorskip("pyarrow.parquet").read_table(out / "tensor.parquet").to_pydict()
        rows = [(found["values"][at] or "", found["error"][at] or "") for at in range(3)]
    assert [error[: len(reason)] for _, error in rows] == ["", reason, ""]
    assert [bool(values) for values, _ in rows] == [True, False, True]


def test_nothing_is_overwritten(run: Run, tmp_path: Path) -> None:
    """A folder that is not empty, the run itself, and a file are refused; --force replaces files of the same names."""
    export(run, "csv", tmp_path / "out")
    before = (tmp_path / "out" / "scalar.csv").read_bytes()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    for out in (tmp_path / "out", Path(run.path)):
        with pytest.raises(InstrumentError, match="is not empty; give another folder, or --force"):
            export(run, "csv", out, superseded=True)
    with pytest.raises(InstrumentError, match=r"mine\.txt is a file; -o takes a folder"):
        export(run, "csv", tmp_path / "out" / "mine.txt", force=True)
    assert (tmp_path / "out" / "scalar.csv").read_bytes() == before
    export(run, "csv", tmp_path / "out", superseded=True, force=True)
    assert (tmp_path / "out" / "scalar.csv").read_bytes() != before
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"


@pytest.mark.parametrize("name", ["loss.csv", "run.json", "w.npy", "i.png"])
def test_a_folder_that_is_called_like_a_file_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    """A file of that name was meant, which the folder would not be; one that is there already is taken."""
    with pytest.raises(InstrumentError, match=rf"{name} is called like a file; -o takes a folder"):
        export(run, "csv", tmp_path / name)
    assert list(tmp_path.glob(name)) == []
    (tmp_path / name).mkdir()
    export(run, "csv", tmp_path / name)
    assert "scalar.csv" in {path.name for path in (tmp_path / name).iterdir()}


def test_a_failure_leaves_no_half_file(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has its name once all is in it."""

    def fail(_: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("instrument.formats.text._base64", fail)
    with pytest.raises(OSError, match="No space left"):
        export(run, "csv", tmp_path / "out")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["scalar.csv"]


def test_what_cannot_be_exported_is_1(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No tag matches, or nothing of it has a place in the format."""
    assert main(["export", run.path, "--to", "csv", "-o", str(tmp_path / "out"), "--tag", "x*"]) == 1
    assert capsys.readouterr().err == (
        "instrument: run 'run' has no tag that matches 'x*'; it has 'h', 'i', 'loss', 'net', 'w/a'\n"
    )
    assert main(["export", run.path, "--to", "png", "-o", str(tmp_path / "out"), "--tag", "loss"]) == 1
    assert capsys.readouterr().err == (
        "instrument: nothing of run 'run' can be exported to png: 1 scalar tag: they are no pictures\n"
    )
    assert main(["export", run.path, "--to", "xml", "-o", str(tmp_path / "out")]) == 2
    assert not (tmp_path / "out").exists()


def test_the_report_of_an_export(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was written as a table, as JSON and as CSV; what was not, on stderr."""
    out = str(tmp_path / "o")
    words = ["export", run.path, "--to", "csv", "--force", "-o", out]
    assert main(words) == 0
    shown, err = capsys.readouterr()
    assert [line.split() for line in shown.splitlines()][:2] == [
        ["KIND", "POINTS", "FILE"],
        ["scalar", "3", f"{out}/scalar.csv"],
    ]
    assert err == "instrument: not exported: 1 superseded point: --superseded exports them too\n"
    assert main([*words, "--csv"]) == 0
    assert capsys.readouterr().out.splitlines()[:2] == [
        "table,run,path,file,kind,tag,points,reason",
        f"written,run,{run.path},{out}/scalar.csv,scalar,,3,",
    ]
    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    head = {"run": "run", "path": run.path}
    assert report["written"][0] == {**head, "file": f"{out}/scalar.csv", "kind": "scalar", "tag": "", "points": 3}
    assert report["left_out"] == [{**head, "reason": "1 superseded point: --superseded exports them too"}]


def test_a_tree_is_exported(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run into a folder of its place below the tree; one that has nothing for the format is told."""
    root, out = tmp_path / "tree", tmp_path / "out"
    every_kind(root / "a" / "x")
    every_kind(root / "y")
    write(root / "void", [])
    assert main(["export", str(root), "--to", "csv", "-o", str(out), "--exclude", "*", "--tag", "loss", "--json"]) == 1
    assert "has no tag that matches 'loss' without '*'" in capsys.readouterr().err
    assert main(["export", str(root), "--to", "csv", "-o", str(out), "--exclude", "w/*", "--json"]) == 0
    text, err = capsys.readouterr()
    report = json.loads(text)
    assert {row["run"] for row in report["written"]} == {"a/x", "y"}
    for row in report["written"]:
        assert Path(row["file"]).is_relative_to(out / row["run"])
    assert sorted(path.name for path in (out / "a" / "x").iterdir()) == [
        "graph.csv", "histogram.csv", "image.csv", "lineage.json", "scalar.csv",
    ]  # fmt: skip
    assert (
        "instrument: not exported: void: run 'void' has no tag that matches all without 'w/*'; it has none at all"
        in err
    )
    assert main(["export", str(root), "--to", "csv", "-o", str(out)]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_tags_cannot_leave_the_folder_or_collide(tmp_path: Path) -> None:
    """Whatever they are called, each is a file of its own below the folder."""
    tags = [*EVIL, "../up", "/abs", "a", "a/b", "a.npy", "points", "..", "", "x" * 3000]
    for kind in ("scalar", "tensor", "image"):
        write(tmp_path / kind, [Event.of(1, START, [item(kind, tag, 1.0) for tag in tags])])
        written, _ = export(read_run(tmp_path / kind), "npy", tmp_path / "out" / kind)
        assert sorted(one.tag for one in written) == sorted(tags)
        assert len({one.file for one in written}) == len(tags)
        assert all(Path(one.file).resolve().is_relative_to(tmp_path / "out" / kind) for one in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image", "out", "scalar", "tensor"]
    assert len(list((tmp_path / "out" / "tensor").rglob("1.npy"))) == len(tags)


def test_texts_in_csv_are_quoted_and_harmless(tmp_path: Path) -> None:
    """A CSV reader gives back each tag; a formula has an apostrophe before it."""
    tags = [*EVIL, 'a,"b"']
    write(tmp_path / "run", [Event(1, START, (), dict.fromkeys(tags, 1.0))])
    export(read_run(tmp_path / "run"), "csv", tmp_path / "out")
    assert [row["tag"] for row in table(tmp_path / "out" / "scalar.csv")] == [
        "'" + tag if tag.startswith("=") else tag for tag in sorted(tags)
    ]


def test_other_types_of_tensors(tmp_path: Path) -> None:
    """bool, empty and scalar tensors, complex numbers and texts; a strange float keeps all its digits."""
    arrays = {"b": np.array([True, False]), "e": np.zeros((0, 3)), "s": np.array(0.1 + 0.2)}
    items = [ArrayItem("tensor", tag, array, array.dtype.name) for tag, array in arrays.items()]
    write(tmp_path / "run", [Event.of(1, START, items)])
    export(read_run(tmp_path / "run"), "json", tmp_path / "json")
    found = {
        row["tag"]: (row["shape"], row["values"]) for row in json.loads((tmp_path / "json/tensor.json").read_text())
    }
    assert found == {"b": ([2], [True, False]), "e": ([0, 3], []), "s": ([], [0.30000000000000004])}
    assert "".join(_pieces(np.array([1 + 2j]))) == '"(1+2j)"'
    assert "".join(_pieces(np.array(["a", 'b"'], object))) == '"a", "b\\""'
    export(read_run(tmp_path / "run"), "npy", tmp_path / "npy")
    for tag, array in arrays.items():
        np.testing.assert_array_equal(np.load(tmp_path / "npy" / "tensor" / tag / "1.npy"), array, strict=True)


def test_a_picture_of_another_format_becomes_png(tmp_path: Path) -> None:
    """Its pixels are those of the picture."""
    pillow = pytest.importorskip("PIL.Image")
    pillow.new("RGB", (5, 4), (255, 0, 0)).save(tmp_path / "x.bmp")
    found = Image((tmp_path / "x.bmp").read_bytes(), 4, 5, 3)
    data = png(found)
    assert data.startswith(b"\x89PNG")
    np.testing.assert_array_equal(image.pixels(Image(data, 4, 5, 3)), image.pixels(found))


@pytest.mark.parametrize("to", ["csv", "json"])
def test_large_tensors_are_written_in_pieces(tmp_path: Path, to: str) -> None:
    """300,000 elements as text take less memory than the list of them would."""
    big = np.arange(300_000, dtype=np.float32)
    write(tmp_path / "run", [Event.of(step, START, (ArrayItem("tensor", "t", big, "float32"),)) for step in (1, 2)])
    opened = read_run(tmp_path / "run")
    opened.tags()
    del big
    tracemalloc.start()
    export(opened, to, tmp_path / "out")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (tmp_path / "out" / f"tensor.{to}").stat().st_size > 4_500_000
    assert peak_bytes < 8_000_000


def test_series_longer_than_a_batch(tmp_path: Path) -> None:
    """Every point is there, once and in order."""
    write(tmp_path / "run", (Event(step, START, (), {"x": step / 3}) for step in range(40_000)))
    opened = read_run(tmp_path / "run")
    for to in ("csv", "json", "npy"):
        export(opened, to, tmp_path / to)
    expected = [step / 3 for step in range(40_000)]
    assert [float(row["value"]) for row in table(tmp_path / "csv" / "scalar.csv")] == expected
    assert [row["value"] for row in json.loads((tmp_path / "json" / "scalar.json").read_text())] == expected
    assert np.load(tmp_path / "npy" / "scalar" / "x.npy")["value"].tolist() == expected
