"""Messages of recording, profiling and landscapes, made to happen where no other test compares their words."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore", reason="MindSpore is not installed")

from instrument import (
    Profiler,
    StopAtStep,
    SummaryCollector,
    SummaryLandscape,
    SummaryRecord,
    marks,
    processes,
    schedule,
)
from instrument.collect import sources
from instrument.errors import RecordingError
from instrument.marks import MAX_NAMES
from instrument.profiler.archive import archive_files
from instrument.profiler.recorder import MANY_STEPS
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target
from tests.docs.happen import is_said, said
from tests.profiler.conftest import device

__all__ = ["device"]


def _params(**given: Any) -> Any:
    return SimpleNamespace(**given)


def _add(folder: Path, *words: Any) -> None:
    with SummaryRecord(folder, num_process=0) as record:
        record.add_value(*words)


def _compute(folder: Path, **options: Any) -> Any:
    return SummaryLandscape(folder).compute(lambda: None, **options)


def _without_interpreter(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "interpreters", list)
        SummaryRecord(folder, num_process=1).close()


def _many_names() -> None:
    spans = marks._Spans()  # not those of this process, which other tests go on to use
    for number in range(MAX_NAMES + 1):
        spans[f"surplus {number}"]


def _on_devices(folder: Path) -> None:
    (folder / "ckpt_dir").mkdir()
    told = {
        "epoch_group": {"0": [1, 2, 3]}, "model_params_file_map": {one: f"{one}.ckpt" for one in "123"},
        "step_per_epoch": 1, "unit": "step", "num_samples": 1, "landscape_size": 3,
        "create_landscape": {"train": True, "result": True},
    }  # fmt: skip
    (folder / "ckpt_dir" / "train_metadata.json").write_text(json.dumps(told))
    SummaryLandscape(folder).gen_landscapes_with_multi_process(lambda: None, device_ids=[9])


RECORDING: dict[str, Callable[[Path], Any]] = {
    "The name is … of type …; expected str.": lambda folder: _add(folder, "scalar", 3, 1.0),
    "The image … has shape …; expected one picture, (H, W), (C, H, W) or (H, W, C), or a batch of them, (N, C, H, W) "
    "or (N, H, W, C).": lambda folder: _add(folder, "image", "x", np.ones(2)),
    "The image … has shape …, which holds no pixel.": lambda folder: _add(folder, "image", "x", np.ones((1, 3, 0, 2))),
    "… has the key … of type …; expected str.": lambda folder: SummaryCollector(folder, custom_lineage_data={1: 2}),
    "… is a …; expected str.": lambda folder: SummaryRecord(folder, file_prefix=3),  # type: ignore[arg-type]
    "the network's output is a …, in which no loss is to be found": lambda _: sources.loss("x"),
    "the network's output is empty": lambda _: sources.loss(np.empty(0)),
    "no optimiser is found in the model or its network": lambda _: sources.optimizer(_params()),
    "the evaluation gave no metrics": lambda _: sources.metrics(_params(metrics=3)),
    "No worker can be started (…): … is written by the training process.": _without_interpreter,
    "There are more than … names of spans, … the latest: marks of further ones share a name. A name is best the same "
    "each time; what differs belongs elsewhere.": lambda _: _many_names(),
}
LANDSCAPES: dict[str, Callable[[Path], Any]] = {
    "normalize is …; expected 'filter', 'layer', None or 'auto'.": lambda folder: _compute(folder, normalize="row"),
    "normalize is …; the axes 'mindspore' are normalised by 'layer', by definition.": lambda folder: _compute(
        folder, axes="mindspore", normalize="filter"
    ),
    "extent is …; expected finite numbers, each axis ascending.": lambda folder: _compute(folder, extent=(1, 0, 0, 1)),
    "extent is …; expected two numbers: x from, to.": lambda folder: SummaryLandscape(folder).compute_line(
        lambda: None, 1, 2, extent=3
    ),
    "checkpoints is a …; ….": lambda folder: _compute(folder, checkpoints=3),
    "checkpoints has the key …; ….": lambda folder: _compute(folder, checkpoints={"a": "b"}),
    "checkpoint … is a …; ….": lambda folder: _compute(folder, checkpoints={1: 2}),
    "device_ids is …; expected different numbers from 0 to 7.": _on_devices,
}


@pytest.mark.parametrize("message", RECORDING)
def test_messages_of_recording(message: str, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """Of values, options and parameters of a callback."""
    assert is_said(message, said(lambda: RECORDING[message](tmp_path), caplog, capsys))


@pytest.mark.parametrize("message", LANDSCAPES)
def test_messages_of_landscapes(message: str, tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """Of options, before anything is computed."""
    assert is_said(message, said(lambda: LANDSCAPES[message](tmp_path), caplog, capsys))


def _long(folder: Path) -> None:
    with Profiler(folder) as profiler:
        for _ in range(MANY_STEPS + 1):
            profiler.step()


def _with_handler(folder: Path) -> None:
    def fail(_: Any) -> None:
        raise ZeroDivisionError

    profiler = Profiler(folder, schedule=schedule(active=1, repeat=1), on_trace_ready=fail)
    profiler.step()
    profiler.stop()


PROFILING: dict[str, Callable[[Path], Any]] = {
    "start_… is … and stop_… is …; expected start <= stop.": lambda folder: StopAtStep(5, 3, folder),
    "stop() was called, but nothing is being recorded; call start() first.": lambda folder: Profiler(
        folder, start_profile=False
    ).stop(),
    "Profiler(…): …": lambda folder: Profiler(folder, start_profile=False).stop(),
    "step() was called before start(); the schedule begins with start().": lambda folder: Profiler(
        folder, start_profile=False, schedule=schedule(active=1)
    ).step(),
    "Profiler: …": lambda folder: Profiler(folder, start_profile=False, schedule=schedule(active=1)).step(),
    "… is … of type …; expected str.": lambda folder: Profiler(folder, start_profile=False).add_metadata(
        "key",
        3,  # type: ignore[arg-type]
    ),
    "value of … is no JSON: …. Use add_metadata for plain text.": lambda folder: Profiler(
        folder, start_profile=False
    ).add_metadata_json("key", "{"),
    "mode is …; expected 'sync' or 'async'.": lambda folder: Profiler(folder, start_profile=False).analyse(mode="x"),
    "Profiler: a window has been open for … steps and grows on, in memory; stop() closes it, max_steps=N does so by "
    "itself.": _long,
    "on_trace_ready failed: …; the trace itself is safe in ….": _with_handler,
}


@pytest.mark.parametrize("message", PROFILING)
def test_messages_of_profiling(message: str, tmp_path: Path, device: Any, caplog: Any, capsys: Any) -> None:
    """Of calls that make no sense at their time, options, and a handler that fails."""
    assert is_said(message, said(lambda: PROFILING[message](tmp_path), caplog, capsys))


class _Refusing:
    """A sink that takes nothing and has no reason."""

    def __init__(self, sink: Sink) -> None:
        self.path, self.stats = sink.path, sink.stats

    def write(self, _: Any) -> bool:
        return False

    def take_error(self) -> None:
        return None


def test_message_of_a_sink_that_refuses_a_piece(tmp_path: Path, caplog: Any, capsys: Any) -> None:
    """What a file at its limit says of a piece of a trace."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a").write_bytes(b"a")
    sink = open_sink(Target(str(tmp_path / "run"), kind="profile"), 0)
    refusing: Any = _Refusing(sink)

    texts = said(lambda: archive_files(str(tmp_path / "raw"), 0, 0, "cpu", refusing), caplog, capsys)
    sink.close()
    assert is_said("a piece was refused", texts)
    assert issubclass(RecordingError, RuntimeError)


def _small(**options: Any) -> Any:
    """A landscape of a small network, which is made for nothing where the options are wrong."""
    from tests.landscape import build

    checkpoints = options.pop("checkpoints", None) or build.small_checkpoints(3)
    callback = options.pop("callback", build.small_callback)
    with tempfile.TemporaryDirectory() as folder:
        return SummaryLandscape(folder).compute(callback, checkpoints=checkpoints, size=3, **options)


def _other_shapes() -> dict[int, Any]:
    from tests.landscape import build

    found = build.small_checkpoints(3).items()
    return {number: {name: values[..., None] for name, values in tensors.items()} for number, tensors in found}


def _differing() -> dict[int, Any]:
    from tests.landscape import build

    found = build.small_checkpoints(3)
    return {**found, 1: {**found[1], "more": np.zeros(3, np.float32)}}


WEIGHTS: dict[str, dict[str, Any] | Callable[[], dict[str, Any]]] = {
    "The two directions are parallel; there is no plane.": {"axes": (np.ones(51), np.ones(51))},
    "axes has … of shape …; expected ….": {"axes": ({"fc1.bias": np.ones(2)}, {"fc1.bias": np.ones(2)})},
    "axes has a direction of … numbers; expected … finite ones.": {"axes": (np.ones(3), np.ones(3))},
    "Give either executor or workers, not both.": {"workers": 1, "executor": ThreadPoolExecutor(1)},
    "…: the dataset has … samples; … were asked for.": {"num_samples": 1000},
    "…: … has shape … and ….": lambda: {"checkpoints": _other_shapes()},
    "The checkpoints of … … and … differ in …: they hold … and … parameters, and are of different networks, or one of "
    "them is damaged.": lambda: {"checkpoints": _differing()},
}


@pytest.mark.parametrize("message", WEIGHTS)
def test_messages_of_weights(message: str, caplog: Any, capsys: Any) -> None:
    """Of axes, checkpoints and samples that do not fit the network."""
    options = WEIGHTS[message]
    assert is_said(message, said(lambda: _small(**(options() if callable(options) else options)), caplog, capsys))
