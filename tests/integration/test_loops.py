"""Trainings that end before their time, loops written by hand, and notebooks."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from tests.integration.conftest import ROOT, Script

#: Python's own end by Ctrl+C, and that of MindSpore's handler.
KILLED = (-signal.SIGINT, -signal.SIGTERM)


@pytest.mark.parametrize(("name", "error"), [("error", "RuntimeError"), ("exit", "SystemExit")])
def test_what_was_recorded_before_an_exception_is_there(script: Script, mode: str, name: str, error: str) -> None:
    """A callback that raises, or calls sys.exit, in step 7: steps 1 to 6 are whole, and the next training works."""
    ran = script("interrupted", mode, statuses=KILLED)
    run = ran.run(name) if name == "error" else read(ran.run(name).files[0])
    assert run.scalars("loss/auto").step.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.scalars("mean").value.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.histograms("dense.weight/auto").step.tolist() == [1, 2, 3, 4, 5, 6]
    assert run.damage == []
    assert f"{name} {error} Stats(events=8," in ran.stdout  # and the lineage, at the beginning and at the end
    first = ran.run(name).starts[0]
    assert (first.state, first.reason.partition(":")[0]) == ("failed", error)


def test_what_was_recorded_before_ctrl_c_is_there(script: Script, mode: str) -> None:
    """SIGINT in step 7 ends the process as MindSpore has it; the second training of the collector goes on counting."""
    ran = script("interrupted", mode, statuses=KILLED)
    run = ran.run("exit")
    assert run.scalars("loss/auto", superseded=True).step.tolist() == list(range(1, 13))
    assert [start.state for start in run.starts] == ["failed", "killed"]
    assert run.lineage["train"]["hyper_parameters"]["learning_rate"] == 0.5
    assert run.damage == []
    assert "Exception ignored" not in ran.stderr


@pytest.mark.parametrize(
    ("how", "status", "end"), [("plain", -signal.SIGTERM, []), ("python", 0, ["KeyboardInterrupt"])]
)
def test_ctrl_c_at_any_moment_loses_nothing(script: Script, mode: str, how: str, status: int, end: list[str]) -> None:
    """MindSpore ends the process by SIGTERM; with Python's handler for that it is a KeyboardInterrupt.

    What `record` answered True for is in the file, at most the step in progress beside it; the collector is as far.
    """
    ran = script("ctrl_c", mode, how, statuses=(status,))
    lines = ran.stdout.splitlines()
    told = [int(line) for line in lines if line.isdecimal()]
    own, collected = ran.run("own"), ran.run()
    assert [line for line in lines if not line.isdecimal()] == end
    assert told == list(range(1, len(told) + 1))
    assert len(told) >= 30
    assert own.scalars("own").value.tolist()[: len(told)] == told
    assert len(own.scalars("own")) <= len(told) + 1
    steps = collected.scalars("loss/auto").step.tolist()
    assert steps == list(range(1, len(steps) + 1))
    assert 0 <= len(steps) - len(told) <= 1
    assert own.damage == collected.damage == []
    assert "Exception ignored" not in ran.stderr


INTERRUPTED = """
import signal
signal.signal(signal.SIGTERM, signal.default_int_handler)
import mindspore as ms
import numpy as np
from mindspore import nn
from instrument import SummaryRecord
ms.set_context(mode=ms.GRAPH_MODE)
nn.Dense(2, 1)(ms.Tensor(np.ones((1, 2), np.float32)))    # from now on MindSpore's handler is there
record = SummaryRecord("run")
for step in range(1, 10**9):
    record.add_value("scalar", "loss", step)
    record.record(step)
    if step == 100:
        print("ready", flush=True)
"""


def test_interrupting_a_cell_leaves_its_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With Python's handler for SIGTERM, as the page on notebooks says: the next cell reads what was recorded."""
    manager = pytest.importorskip("jupyter_client.manager", reason="jupyter_client is not installed")
    if find_spec("ipykernel") is None:
        pytest.skip("ipykernel is not installed")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    kernel, client = manager.start_new_kernel(kernel_name="python3", cwd=str(tmp_path))

    def wait_for(said: str) -> None:
        """Until the kernel prints this, or an error of this name."""
        contents = (client.get_iopub_msg(timeout=60)["content"] for _ in range(1000))
        assert any(said in (content.get("text", "").strip(), content.get("ename")) for content in contents)

    try:
        client.execute(INTERRUPTED, stop_on_error=False)  # else what comes behind it is refused for a moment
        wait_for("ready")
        kernel.interrupt_kernel()
        wait_for("KeyboardInterrupt")
        client.execute("record.close(); from instrument import read; print(len(read('run').scalars('loss')) >= 100)")
        wait_for("True")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def test_a_flat_script_runs_its_body_once(script: Script, mode: str) -> None:
    """Without a main guard, workers do not run the script again."""
    assert script("interrupted", mode, statuses=KILLED).stdout.count("BODY") == 1


def test_accumulated_batches_are_one_point_an_update(script: Script, mode: str) -> None:
    """Groups of 4, 4 and 2 batches in each of two epochs: six updates, each with the mean of its batches' losses."""
    ran = script("loops", mode)
    run, expected = ran.run(), ran.expected["updates"]
    assert run.tags() == {"scalar": ["batch/loss", "loss"], "histogram": ["w"]}
    loss, last = run.scalars("loss", superseded=True), run.scalars("batch/loss", superseded=True)
    assert loss.step.tolist() == expected[:, 0].tolist() == [1, 2, 3, 4, 5, 6]
    np.testing.assert_array_equal(loss.value, expected[:, 1])
    assert loss.value[0] == (0 + 1 + 2 + 3) / 4
    np.testing.assert_array_equal(last.value, expected[:, 2])
    assert [histogram.min for histogram in run.histograms("w").values] == expected[:, 3].tolist()
    assert expected[:, 3].tolist() == [0.0, -2.0, -4.0, -5.0, -7.0, -9.0]  # before each update


NOTEBOOK = [
    "print('BODY')\nfrom instrument import SummaryRecord, read\nrecord = SummaryRecord(DIRECTORY, num_process=2)",
    "for step in range(5):\n    record.add_value('scalar', 'loss', step / 2)\n    print(record.record(step))",
    "record.flush()\nprint(read(DIRECTORY).scalars('loss').value.tolist())",
    "record.add_value('scalar', 'loss', 9.0)\nrecord.record(9)",
]


@pytest.mark.skipif(
    find_spec("nbclient") is None or find_spec("ipykernel") is None, reason="needs nbclient and ipykernel"
)
def test_a_notebook_records_and_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a kernel values are recorded, read back while the recorder is open, and kept when the kernel ends."""
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    directory = str(tmp_path / "run")
    cells = [nbformat.v4.new_code_cell(code.replace("DIRECTORY", repr(directory))) for code in NOTEBOOK]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, timeout=60).execute()
    texts = ["".join(output.get("text", "") for output in cell.outputs) for cell in notebook.cells]
    assert texts[0] == "BODY\n"
    assert texts[1].split() == ["True"] * 5
    assert texts[2].strip() == "[0.0, 0.5, 1.0, 1.5, 2.0]"
    points = read(directory).scalars("loss")
    assert list(zip(points.step.tolist(), points.value.tolist(), strict=True))[-1] == (9, 9.0)
