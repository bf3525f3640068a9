"""`instrument export --to tensorboard` and `instrument import`: there and back without a difference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import event as codec
from instrument.codec import tensorboard as tb
from instrument.codec import wire
from instrument.eventfile import names
from instrument.formats import export
from instrument.formats.tensorboard_import import import_runs
from instrument.runs.run import Run, read_run
from instrument.show.cli import main
from instrument.values import ArrayItem, Event, MessageItem
from tests import protobuf
from tests.runs.build import SECONDS, framed, steps, write
from tests.show.runs import every_kind, lineage

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "tensorboard"
FILE = "events.out.tfevents.1700000000.host.1.0"


def facts(value: Any) -> Any:
    """A value without arrays, which do not compare; NaN equals itself."""
    if isinstance(value, float):
        return repr(value)
    fields = {name: one.tolist() if isinstance(one, np.ndarray) else one for name, one in vars(value).items()}
    return repr(fields)


def points(run: Run, *left_out: str) -> dict[tuple[str, str], list[tuple[int, float, Any]]]:
    """Every point of a run, but for the kinds and tags that are left out."""
    return {
        (kind, tag): [(step, wall_time, facts(value)) for step, wall_time, value in run.points(kind, tag)]  # type: ignore[attr-defined]
        for kind, tags in run.tags().items()
        for tag in tags
        if kind not in left_out and not tag.startswith("lineage/")
    }


def scalar(tag: str, number: float) -> bytes:
    single = wire.key(tb.SIMPLE_VALUE, wire.FIXED32) + np.float32(number).tobytes()
    return wire.delimited(1, wire.delimited(tb.TAG, tag.encode()) + single)


def summary(step: int, *values: bytes, wall_time: float = 5.0) -> bytes:
    body = wire.delimited(tb.SUMMARY, b"".join(values))
    return framed([wire.double(tb.WALL_TIME, wall_time) + wire.integer(tb.STEP, step) + body])


# ---------------------------------------------------------------- export


def test_every_point_goes_there_and_back(tmp_path: Path) -> None:
    """All kinds that TensorBoard has, values with all digits, steps and times."""
    run = read_run(every_kind(tmp_path / "run"))
    written, left_out = export(run, "tensorboard", tmp_path / "out")
    assert left_out == ["1 superseded point: --superseded exports them too"]
    copy = read_run(tmp_path / "out")
    assert copy.damage == []
    expected = points(run, "graph")
    assert points(copy, "graph") == expected
    assert {(one.kind, one.tag): one.points for one in written if one.tag} == {
        key: len(found) for key, found in expected.items()
    }
    assert copy.graph is not None


def test_what_has_no_place_is_told(tmp_path: Path) -> None:
    """Landscapes, and all graphs but the last."""
    message = protobuf.message_class("LossLandscape")().SerializeToString()
    graphs = [protobuf.message_class("GraphProto")(name=name).SerializeToString() for name in ("a", "b")]
    items = [MessageItem("landscape", "surface", message), *(MessageItem("graph", "", graph) for graph in graphs)]
    write(tmp_path / "run", [Event(1, 5.0, items, {"x": 1.0})])
    written, left_out = export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "out")
    assert [one.kind for one in written] == ["graph", "scalar"]
    assert left_out == [
        "1 landscape tag: TensorBoard has no place for them",
        "1 of 2 graphs: TensorBoard shows one a run, the last",
    ]


def test_scalars_are_in_a_file_of_their_own(tmp_path: Path) -> None:
    """Its name ends in 0; the other has everything else."""
    export(read_run(every_kind(tmp_path / "run")), "tensorboard", tmp_path / "out")
    first, second = sorted((tmp_path / "out").iterdir())
    assert first.name.endswith(".0.0")
    assert second.name.endswith(".0.1")
    assert list(read_run(first).tags()) == ["scalar"]
    assert "scalar" not in read_run(second).tags()


def test_lineage_becomes_hyperparameters_and_metrics(tmp_path: Path) -> None:
    """Those of the training, of the evaluation, and of the user."""
    write(tmp_path / "run", steps("scalar", "x", range(1, 4), 1.0, start=50.0))
    lineage(tmp_path / "run", optimizer="SGD", rate=0.1, accuracy=0.75, note="toy")
    export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "out")
    copy = read_run(tmp_path / "out")
    assert copy.lineage == {"hparams": {"optimizer": "SGD", "learning_rate": 0.1, "batch_size": 32.0, "note": "toy"}}
    assert list(copy.scalars("lineage/eval/accuracy")) == [(3, 52.0, 0.75)]
    assert list(copy.scalars("lineage/train/loss")) == [(3, 52.0, 0.25)]
    assert sorted(copy.tags()["text"]) == ["lineage/custom", "lineage/eval", "lineage/train"]


def test_a_tag_of_two_kinds_has_two_names(tmp_path: Path) -> None:
    """The scalar keeps it."""
    values = [ArrayItem("tensor", "x", np.ones(2), "float64"), ArrayItem("tensor", "x/tensor", np.zeros(2), "float64")]
    write(tmp_path / "run", [Event(1, 5.0, values, {"x": 2.0})])
    written, _ = export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "out")
    copy = read_run(tmp_path / "out")
    assert copy.tags() == {"scalar": ["x"], "tensor": ["x/tensor", "x/tensor_"]}
    np.testing.assert_array_equal(copy.tensors("x/tensor")[1], [0, 0])
    np.testing.assert_array_equal(copy.tensors("x/tensor_")[1], [1, 1])
    assert sorted(one.tag for one in written) == ["x", "x/tensor", "x/tensor_"]


def test_writers_have_folders(tmp_path: Path) -> None:
    """Two devices do not share a curve: each is a run of its own in TensorBoard."""
    for device in (0, 1):
        name = f"events.out.events.summary.100.{device}.node_MS"
        path = tmp_path / "run" / name
        path.parent.mkdir(exist_ok=True)
        payload = codec.encode(Event(1, 5.0, (), {"x": float(device)}))[0]
        path.write_bytes(framed([b"".join(payload)]))
    export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "out")
    found = {path.name: read_run(path).scalars("x")[1] for path in (tmp_path / "out").iterdir()}
    assert found == {"device 0 on node": 0.0, "device 1 on node": 1.0}


def test_steps_never_go_back(tmp_path: Path) -> None:
    """A restart's points come after those before them: TensorBoard drops what is behind a step that it has seen."""
    write(tmp_path / "run", steps("scalar", "x", range(6), 1.0, start=50.0))
    write(tmp_path / "run", steps("scalar", "x", range(3, 8), 2.0, start=100.0), seconds=SECONDS + 100)
    _, left_out = export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "out")
    (path,) = (tmp_path / "out").iterdir()
    series = read_run(path).scalars("x", superseded=True)
    assert series.step.tolist() == list(range(8))
    assert series.value.tolist() == [1.0] * 3 + [2.0] * 5
    assert left_out == ["3 superseded points: --superseded exports them too"]


# ---------------------------------------------------------------- import


@pytest.mark.parametrize("name", ["torch", "styles"])
def test_files_of_others_are_imported(tmp_path: Path, name: str) -> None:
    """Old and new style: every series with its kind, steps, times and values."""
    found = import_runs(str(GOLDEN / name), str(tmp_path / "out"))
    run = read_run(tmp_path / "out")
    assert [names.recognise(Path(path).name).kind for path in run.files] == [names.SUMMARY]  # type: ignore[union-attr]
    assert points(run) == points(read_run(GOLDEN / name))
    assert sum(written.points for _, written in found.written) == sum(map(len, points(run).values()))
    assert found.left_out == []


def test_hyperparameters_become_lineage(tmp_path: Path) -> None:
    """Those of other names are the user's own."""
    import_runs(str(GOLDEN / "hparams"), str(tmp_path / "out"))
    assert read_run(tmp_path / "out").lineage == {"custom": {"lr": 0.1, "name": "sgd", "nesterov": 1.0}}


def test_our_own_export_comes_back(tmp_path: Path) -> None:
    """Train lineage is in its place again, the user's facts are the user's."""
    run = read_run(every_kind(tmp_path / "run"))
    export(run, "tensorboard", tmp_path / "there")
    import_runs(str(tmp_path / "there"), str(tmp_path / "back"))
    back = read_run(tmp_path / "back")
    assert points(back, "graph") == points(run, "graph")
    known = run.lineage["train"]["hyper_parameters"]
    assert back.lineage["train"]["hyper_parameters"] == known
    assert back.lineage["custom"] == {"seed": 1.0, "score": "nan"}


def test_a_tree_keeps_its_places(tmp_path: Path) -> None:
    """Runs below a directory are at the same places below the new one."""
    import_runs(str(GOLDEN), str(tmp_path / "out"))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["hparams", "styles", "tensorboardx", "torch"]
    assert len(read_run(tmp_path / "out" / "torch").scalars("loss")) == 20


def test_restarts_stay_restarts(tmp_path: Path) -> None:
    """Each file becomes one: what a later one supersedes is still there."""
    (tmp_path / "run").mkdir()
    for seconds, first, wall_time in ((100, 0, 100.0), (200, 3, 200.0)):
        frames = [summary(step, scalar("x", seconds), wall_time=wall_time + step) for step in range(first, 6)]
        (tmp_path / "run" / f"events.out.tfevents.{seconds}.host.1.0").write_bytes(b"".join(frames))
    import_runs(str(tmp_path / "run"), str(tmp_path / "out"))
    series = read_run(tmp_path / "out").scalars("x")
    assert series.value.tolist() == [100.0] * 3 + [200.0] * 3
    assert len(read_run(tmp_path / "out").scalars("x", superseded=True)) == 9


def test_two_files_of_one_second(tmp_path: Path) -> None:
    """They do not become one."""
    (tmp_path / "run").mkdir()
    for number in (0, 1):
        path = tmp_path / "run" / f"events.out.tfevents.100.host.1.{number}"
        path.write_bytes(summary(1, scalar(f"x{number}", number)))
    import_runs(str(tmp_path / "run"), str(tmp_path / "out"))
    assert read_run(tmp_path / "out").tags() == {"scalar": ["x0", "x1"]}
    assert sorted(path.name.split(".")[4] for path in (tmp_path / "out").iterdir()) == ["100", "101"]


def test_one_tag_twice_at_one_moment(tmp_path: Path) -> None:
    """Both values are kept, in their order."""
    (tmp_path / FILE).write_bytes(summary(1, scalar("x", 1.0), scalar("x", 2.0)) + summary(1, scalar("x", 3.0)))
    import_runs(str(tmp_path / FILE), str(tmp_path / "out"))
    assert read_run(tmp_path / "out").scalars("x", superseded=True).value.tolist() == [1.0, 2.0, 3.0]
    assert read_run(tmp_path / "out").scalars("x").value.tolist() == [3.0]


def parts_without_place() -> Iterator[bytes]:
    yield framed([wire.delimited(tb.LOG_MESSAGE, b"")])
    sound = wire.delimited(tb.TAG, b"sound") + wire.delimited(tb.AUDIO, b"\x1a\x00")
    for step in range(3):
        yield summary(step, wire.delimited(1, sound))
    yield summary(3, scalar("x", 1.0))
    single = wire.key(tb.SIMPLE_VALUE, wire.FIXED32) + np.float32(1).tobytes()
    yield summary(4, wire.delimited(1, wire.delimited(tb.TAG, b"t\xff") + single))


def test_what_has_no_place_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sounds and log messages are named with their number; the command says so and succeeds."""
    (tmp_path / FILE).write_bytes(b"".join(parts_without_place()))
    assert main(["import", str(tmp_path / FILE), "-o", str(tmp_path / "out"), "--json"]) == 0
    out = json.loads(capsys.readouterr().out)
    assert [row["reason"] for row in out["left_out"]] == [
        f"{FILE}: 3 of audio: there is no place for them",
        f"{FILE}: 1 of log message: there is no place for them",
        f"{FILE}: 1 tags are not UTF-8: the bytes that are not stand as \\udcXX",
    ]
    assert read_run(tmp_path / "out").tags() == {"scalar": ["t\\udcff", "x"]}


def test_a_copy_of_ours_is_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files of TensorBoard's dialect beside ours hold nothing that is not there already; a folder in use is refused."""
    write(tmp_path / "run", steps("scalar", "x", range(3), 1.0, start=5.0))
    export(read_run(tmp_path / "run"), "tensorboard", tmp_path / "there")
    (copy,) = (tmp_path / "there").iterdir()
    copy.rename(tmp_path / "run" / copy.name)
    assert main(["import", str(tmp_path / "run"), "-o", str(tmp_path / "out")]) == 1
    assert "run is in MindSpore's dialect already" in capsys.readouterr().err
    (tmp_path / "void").mkdir()
    assert main(["import", str(tmp_path / "void"), "-o", str(tmp_path / "out")]) == 1
    assert f"there is no event file of TensorBoard at {tmp_path / 'void'}" in capsys.readouterr().err
    assert main(["import", str(GOLDEN / "torch"), "-o", str(tmp_path / "run")]) == 1
    assert "is not empty" in capsys.readouterr().err


def complex_run(folder: Path) -> Path:
    """A run with tensors of complex numbers, with their elements in one piece and one by one."""
    array = np.array([1 + 2j, -0.5j, complex("nan")])
    frames = []
    for step, (dtype, field) in enumerate((("complex64", tb.SCOMPLEX_VAL), ("complex128", tb.DCOMPLEX_VAL))):
        head = wire.integer(tb.DTYPE, tb.DTYPE_NUMBERS[dtype])
        head += wire.delimited(tb.SHAPE, wire.delimited(tb.DIM, wire.integer(tb.DIM_SIZE, 3)))
        for number in (tb.TENSOR_CONTENT, field):
            tensor = head + wire.delimited(number, array.astype(dtype).tobytes())
            tag = wire.delimited(tb.TAG, f"{dtype}/{number}".encode())
            frames.append(summary(step, wire.delimited(1, tag + wire.delimited(tb.TENSOR, tensor))))
    folder.mkdir()
    (folder / FILE).write_bytes(b"".join(frames))
    return folder


def test_complex_tensors_are_values_and_no_damage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are read, shown and exported, to TensorBoard's files too; `verify` finds nothing wrong."""
    folder = complex_run(tmp_path / "run")
    run = read_run(folder)
    assert len(run.tags()["tensor"]) == 4
    for tag in run.tags()["tensor"]:
        (tensor,) = run.tensors(tag).values
        assert tensor.dtype == tensor.array.dtype.name == tag.split("/")[0]
        np.testing.assert_array_equal(tensor.array, np.array([1 + 2j, -0.5j, complex("nan")], tensor.dtype))
    assert main(["verify", str(folder)]) == 0
    assert main(["show", str(folder), "--tag", "*", "--json"]) == 0
    assert main(["show", str(folder), "--tag", "*"]) == 0
    for to in ("csv", "json", "npy", "tensorboard"):
        assert main(["export", str(folder), "--to", to, "-o", str(tmp_path / to)]) == 0
    assert points(read_run(tmp_path / "tensorboard")) == points(run)
    capsys.readouterr()
