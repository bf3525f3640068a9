"""A run in TensorBoard's dialect, live and exported, as TensorBoard 2.21's own readers and pages see it.

They are asked in an environment of their own: its event accumulator, its web application's readers in Python and
in Rust, and its pages for hyper-parameters and graphs.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from instrument.codec import lineage
from instrument.codec import text as text_codec
from instrument.formats import export
from instrument.runs.run import Run, read_run
from instrument.values import ArrayItem, Event, Histogram, MessageItem, Text
from instrument.write.factory import open_sink
from instrument.write.sink import Target
from tests import protobuf
from tests.integration.conftest import ROOT, SCRIPTS

PYTHON = Path(os.environ.get("INSTRUMENT_TENSORBOARD_PYTHON") or ROOT / ".venv-tensorboard" / "bin" / "python")
READER = ROOT.parent / "shared" / "oracle" / "tensorboard_read.py"

pytestmark = [
    pytest.mark.skipif(not PYTHON.exists(), reason=f"TensorBoard's Python is not there: {PYTHON}"),
    pytest.mark.skipif(not READER.exists(), reason=f"the script that drives TensorBoard is not there: {READER}"),
]
RUNS = pytest.mark.parametrize("run", ["live", "exported"])
STEPS = range(1, 21)
SCALARS = {"loss": 0.1, "nan": math.nan, "much": 1e300, "less": -math.inf, "group/é": 2.0}


def event(step: int) -> Event:
    rng = np.random.default_rng(step)
    values = rng.normal(size=(4, 25)).astype(np.float32)
    with_strange = values.copy()
    with_strange[0, :3] = [math.nan, math.inf, -math.inf]
    items = [
        ArrayItem("histogram", "weights", values), ArrayItem("histogram", "strange", with_strange),
        ArrayItem("histogram", "nothing", np.full(3, math.nan, np.float32)),
        ArrayItem("image", "picture", rng.random((3, 3, 5, 7), np.float32)),
        ArrayItem("tensor", "double", values.astype(np.float64) / 3, "float64"),
        ArrayItem("tensor", "bytes", np.arange(6, dtype=np.int8).reshape(2, 3), "int8"),
        ArrayItem("tensor", "brain", values, "bfloat16"), ArrayItem("tensor", "one", np.array(step, np.int64), "int64"),
        MessageItem("text", "note", text(f"**step** {step} 🙂")),
        MessageItem("text", "table", text([[f"a{step}", "b"], ["c", "d"]])),
    ]  # fmt: skip
    return Event(step, 1_700_000_000.25 + step, items, {tag: number * step for tag, number in SCALARS.items()})


def text(value: Any) -> bytes:
    """As a recorder hands it over."""
    return b"".join(text_codec.encode(Text(np.array(value, object))))


def once() -> Event:
    """Lineage and the graph."""
    train = protobuf.message_class("TrainLineage")()
    train.hyper_parameters.optimizer, train.hyper_parameters.learning_rate = "Adam", 0.1
    evaluation = protobuf.message_class("EvaluationLineage")(metric='{"accuracy": 0.75}')
    graph = protobuf.message_class("GraphProto")(name="net")
    node = graph.node.add(name="1", op_type="MatMul", full_name="Default/net-Dense/MatMul-op0")
    node.input.add(name="weight")
    node.output_type.tensor_type.elem_type = 11
    graph.parameters.add(name="weight")
    return Event(20, 1_700_000_021.0, [
        MessageItem("train_lineage", "", train.SerializeToString()),
        MessageItem("eval_lineage", "", evaluation.SerializeToString()),
        MessageItem("custom_lineage_data", "", lineage.custom_message({"note": "toy"})),
        MessageItem("graph", "", graph.SerializeToString()),
        MessageItem("session_end", "", lineage.encode_session_end(True, 1_700_000_022.0)),
    ])  # fmt: skip


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logdir")
    sink = open_sink(Target(str(folder / "live"), dialect="both"), 1)
    for one in [*map(event, STEPS), once()]:
        assert sink.write(one)
    sink.close()
    export(read_run(folder / "live"), "tensorboard", folder / "exported")
    return folder


def ask(*command: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PROTOCOL"))}
    result = subprocess.run(
        [str(PYTHON), *map(str, command)], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result


@pytest.fixture(scope="module")
def seen(logdir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What its readers see, with their limits raised."""
    out = tmp_path_factory.mktemp("oracle") / "seen.json"
    ask(READER, logdir, "--limits", "raised", "--first", "0", "--out", out)
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def pages(logdir: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(ask(SCRIPTS / "tensorboard_pages.py", logdir).stdout)
    return found


@pytest.fixture(scope="module")
def ours(logdir: Path) -> Run:
    """MindSpore's files of the live run."""
    return read_run(logdir / "live")


def single(number: float) -> Any:
    """As the oracle's JSON has a float32."""
    with np.errstate(over="ignore"):
        value = float(np.float32(number))
    return "NaN" if math.isnan(value) else value if math.isfinite(value) else f"{'-' * (value < 0)}Infinity"


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def rows(seen: dict[str, Any], view: str, what: str, run: str, plugin: str) -> list[dict[str, Any]]:
    found = [row for row in seen[view][what] if (row["run"], row["plugin"]) == (run, plugin)]
    return sorted(found, key=lambda row: (row["tag"], row["step"]))


def test_files_are_whole(seen: dict[str, Any]) -> None:
    """Each is read to its end, and names its version and its writer."""
    files = [one for run, one in seen["raw"].items()]
    assert len(files) == 4
    for one in files:
        assert (one["end"]["why"], one["file_version"], one["source_writer"]) == (
            "eof",
            ["brain.Event:2"],
            ["instrument"],
        )
    assert seen["python"]["errors"] == seen["rust"]["errors"] == seen["rust"]["log"] == []


@RUNS
def test_files_of_scalars_have_nothing_else(seen: dict[str, Any], run: str) -> None:
    """Importers of other tools take such a file only."""
    kinds = [
        {kind for kind in ("scalars", "histograms", "images", "tensors", "graphs") if one[kind]}
        for path, one in sorted(seen["raw"].items())
        if path.startswith(run)
    ]
    assert kinds == [{"scalars"}, {"images", "tensors", "graphs"}]


@RUNS
@pytest.mark.parametrize("view", ["python", "rust"])
def test_scalars(seen: dict[str, Any], ours: Run, run: str, view: str) -> None:
    """Every number with its step and time; TensorBoard shows float32."""
    expected = [
        (tag, step, wall_time, single(value))
        for tag in sorted([*ours.tags()["scalar"]])
        for step, wall_time, value in ours.scalars(tag)
    ]
    found = [row for row in rows(seen, view, "scalars", run, "scalars") if not row["tag"].startswith("lineage/")]
    assert [(row["tag"], row["step"], row["wall_time"], row["value"]) for row in found] == expected
    metrics = {row["tag"]: row["value"] for row in rows(seen, view, "scalars", run, "scalars")}
    assert metrics["lineage/eval/accuracy"] == 0.75


@RUNS
@pytest.mark.parametrize("view", ["python", "rust"])
def test_histograms(seen: dict[str, Any], ours: Run, run: str, view: str) -> None:
    """Left edge, right edge and count of each bucket."""
    expected = []
    for tag in ours.tags()["histogram"]:
        for step, wall_time, value in ours.histograms(tag):
            expected.append((tag, step, wall_time, [len(value.counts), 3], sha(buckets(value))))
    found = rows(seen, view, "tensors", run, "histograms")
    assert [(row["tag"], row["step"], row["wall_time"], row["dims"], row["sha256_f32le"]) for row in found] == expected


def buckets(value: Histogram) -> bytes:
    right = np.append(value.left[1:], value.left[-1:] + value.width[-1:])
    return np.stack([value.left, right, value.counts], axis=1).astype("<f4").tobytes()


@RUNS
@pytest.mark.parametrize("view", ["python", "rust"])
def test_images(seen: dict[str, Any], ours: Run, run: str, view: str) -> None:
    """Size and bytes of each PNG."""
    expected = [
        ("picture", step, wall_time, str(value.width), str(value.height), sha(value.data))
        for step, wall_time, value in ours.images("picture")
    ]
    found = rows(seen, view, "blobs", run, "images")
    assert [
        (row["tag"], row["step"], row["wall_time"], row["width"], row["height"], row["blobs"][2]["sha256"])
        for row in found
    ] == expected


@RUNS
@pytest.mark.parametrize("view", ["python", "rust"])
def test_tensors(seen: dict[str, Any], ours: Run, run: str, view: str) -> None:
    """Shape, type and values of each, under the plugin's name "tensors"; bfloat16 is float32 there."""
    expected = []
    for tag in ours.tags()["tensor"]:
        for step, wall_time, value in ours.tensors(tag):
            digest = sha(value.array.reshape(-1).astype("<f4").tobytes())
            expected.append((tag, step, wall_time, [*value.array.shape], value.array.dtype.name, digest))
    found = rows(seen, view, "tensors", run, "tensors")
    assert [
        (row["tag"], row["step"], row["wall_time"], row["dims"], row["dtype"], row["sha256_f32le"]) for row in found
    ] == expected


@RUNS
@pytest.mark.parametrize("view", ["python", "rust"])
def test_texts(seen: dict[str, Any], ours: Run, run: str, view: str) -> None:
    """Shape and bytes of each, under the plugin's name "text"; ours reads them back from MindSpore's files."""
    found = [row for row in rows(seen, view, "tensors", run, "text") if not row["tag"].startswith("lineage/")]
    expected = []
    for tag in ("note", "table"):
        for step, wall_time, value in ours.texts(tag):
            digests = [sha(one.encode()) for one in value.array.reshape(-1).tolist()]
            expected.append((tag, step, wall_time, [*value.array.shape], digests))
    assert [
        (row["tag"], row["step"], row["wall_time"], row["dims"], [one["sha256"] for one in row["strings"]])
        for row in found
    ] == expected
    assert ours.texts("note")[3].text == "**step** 3 🙂"
    assert len(expected) == 2 * len(STEPS)


@RUNS
def test_the_page_of_texts(pages: dict[str, Any], run: str) -> None:
    """Texts are Markdown there, and a table of texts is a table."""
    found = pages["texts"][run]
    assert [step for step, _ in found["note"]] == list(STEPS)
    assert found["note"][2] == [3, "<p><strong>step</strong> 3 🙂</p>"]
    assert found["table"][0][1].count("<td>") == 4


@RUNS
def test_the_accumulator_of_scripts(seen: dict[str, Any], ours: Run, run: str) -> None:
    """What scripts and other tools read with: all scalars, and the graph."""
    found = seen["accumulator"][run]
    own = [one for one in found["scalars"] if not one["tag"].startswith("lineage/")]
    assert len(own) == sum(len(ours.scalars(tag)) for tag in ours.tags()["scalar"])
    assert [one["nodes"] for one in found["graphs"]] == [2]


@RUNS
def test_the_page_of_graphs(pages: dict[str, Any], run: str) -> None:
    """It has the graph, whose nodes are below the scopes that their names say."""
    found = pages["graphs"][run]
    assert found["runs"] == {"live": True, "exported": True}
    assert found["nodes"] == {
        "Parameter/weight": ["Parameter"],
        "Default/net-Dense/MatMul-op0": ["MatMul", "Parameter/weight"],
    }


def test_the_page_of_hyperparameters(pages: dict[str, Any]) -> None:
    """Both runs are sessions of one experiment, with hyper-parameters, metrics, and how the live one ended."""
    found = pages["hparams"]
    names = [one["name"] for one in found["experiment"]["hparamInfos"]]
    assert sorted(names) == ["learning_rate", "note", "optimizer"]
    metrics = [one["name"]["tag"] for one in found["experiment"]["metricInfos"]]
    assert {"lineage/eval/accuracy", "loss", "group/é"} <= set(metrics)
    groups = {one["name"]: one for one in found["groups"]}
    assert sorted(groups) == ["exported", "live"]
    for group in groups.values():
        assert group["hparams"] == {"optimizer": "Adam", "learning_rate": 0.1, "note": "toy"}
        values = {one["name"]["tag"]: one["value"] for one in group["metricValues"]}
        assert values["lineage/eval/accuracy"] == 0.75
    (session,) = groups["live"]["sessions"]
    assert (session["status"], session["endTimeSecs"]) == ("STATUS_SUCCESS", 1_700_000_022.0)
