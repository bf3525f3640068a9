"""A notebook's kernel that is interrupted, restarted or killed while a cell records into an open recorder."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scripts import PRELUDE
from tests.write.build import ROOT, files, steps, wait_for_workers_to_end, wait_until, workers

_MODULES = ("jupyter_client", "ipykernel")
pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in _MODULES), reason="needs jupyter_client and ipykernel"
)
_SECONDS = 120

#: What a first cell holds; the directory and the number of workers come as arguments of a script do.
OPENS = {
    "sink": PRELUDE
    + """
recorder = Recorder()
flush = recorder.sink.flush
def record(step):
    return recorder.write(tensor(step, 1000))
""",
    "SummaryRecord": """
import os, sys
from instrument import SummaryRecord
recorder = SummaryRecord(sys.argv[1], num_process=int(sys.argv[2]))
flush = recorder.flush
def record(step):
    recorder.add_value("scalar", "loss", float(step))
    return recorder.record(step)
""",
}
FRONTS = pytest.mark.parametrize(
    "front",
    [
        "sink",
        pytest.param(
            "SummaryRecord",
            marks=[
                pytest.mark.slow,  # each kernel imports MindSpore
                pytest.mark.skipif(importlib.util.find_spec("mindspore") is None, reason="needs MindSpore"),
            ],
        ),
    ],
)
#: A cell that records until it is interrupted, and writes down which steps were taken.
RECORD = """
book = os.open(BOOK, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
while True:
    if record(step):
        os.write(book, f"{step}\\n".encode())
    step += 1
"""


class Kernel:
    """A kernel whose recorder writes into `folder`, and the steps that it was told to be taken."""

    def __init__(self, manager: Any, folder: Path) -> None:
        self._manager = manager
        self.directory = folder / "run"
        self._book = folder / "book"
        self._client: Any = None

    def start(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.getenv("PYTHONPATH")]))}
        self._manager.start_kernel(cwd=str(self.directory.parent), env={**environment, "GLOG_v": "3"})
        self.connect()

    def connect(self) -> None:
        """To the kernel, which may be another one behind the same ports."""
        self.disconnect()
        self._client = self._manager.client()
        self._client.start_channels()
        self._client.wait_for_ready(_SECONDS)

    def disconnect(self) -> None:
        if self._client is not None:
            self._client.stop_channels()

    def open(self, front: str, first_step: int) -> None:
        prelude = f"import sys; sys.argv = ['', {str(self.directory)!r}, '2']; BOOK = {str(self._book)!r}\n"
        assert self.run(prelude + OPENS[front] + f"\nstep = {first_step}") == "ok"

    def begin_recording(self) -> str:
        """Return, while the cell goes on, when it has been told of 200 more steps; the message's id."""
        before = len(self.told())
        message: str = self._client.execute(RECORD, stop_on_error=False)
        wait_until(lambda: len(self.told()) > before + 200, 30)
        return message

    def told(self) -> list[int]:
        return [int(line) for line in self._book.read_text().split()] if self._book.exists() else []

    def run(self, code: str) -> str:
        """Run a cell: "ok", or the name of its exception."""
        return self.reply(self._client.execute(code))

    def reply(self, message: str) -> str:
        while True:
            reply = self._client.get_shell_msg(timeout=_SECONDS)
            if reply["parent_header"].get("msg_id") == message:
                return str(reply["content"].get("ename", reply["content"]["status"]))

    def interrupt(self) -> None:
        self._manager.interrupt_kernel()

    def restart(self, now: bool) -> None:
        self._manager.restart_kernel(now=now)

    def end(self) -> None:
        self.disconnect()
        if self._manager.has_kernel:
            self._manager.shutdown_kernel(now=True)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernel]:
    """A kernel that runs; no worker of its recorders is left in the end."""
    from jupyter_client.manager import KernelManager

    for name in ("JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    found = Kernel(KernelManager(kernel_name="python3"), tmp_path)
    found.start()
    yield found
    found.end()
    wait_for_workers_to_end(tmp_path)


def agree(found: list[int], told: list[int]) -> bool:
    """What was told is there, and the event that was in flight maybe."""
    return found in (told, [*told, told[-1] + 1])


RESTARTS: dict[str, Callable[[Kernel], None]] = {
    "restart": lambda kernel: kernel.restart(now=False),
    "kill": lambda kernel: kernel.restart(now=True),
}


@FRONTS
@pytest.mark.parametrize("how", RESTARTS)
def test_a_kernel_is_restarted_while_it_records(kernel: Kernel, front: str, how: str) -> None:
    """Everything recorded before is there and the workers are gone; the next kernel records into the same directory."""
    kernel.open(front, first_step=0)
    kernel.begin_recording()
    RESTARTS[how](kernel)
    wait_for_workers_to_end(kernel.directory)
    told = kernel.told()
    (old,) = files(kernel.directory)
    assert agree(steps(old), told)
    before = steps(old)
    kernel.connect()
    kernel.open(front, first_step=1_000_000)
    message = kernel.begin_recording()
    kernel.interrupt()
    assert kernel.reply(message) == "KeyboardInterrupt"
    assert kernel.run("recorder.close()") == "ok"
    assert files(kernel.directory)[0] == old
    assert steps(old) == before
    assert agree(steps(files(kernel.directory)[1]), kernel.told()[len(told) :])


@FRONTS
def test_a_cell_is_interrupted_while_it_records(kernel: Kernel, front: str) -> None:
    """The recorder goes on in the next cell with the same workers, and no step is missing or half there."""
    kernel.open(front, first_step=0)
    message = kernel.begin_recording()
    pids = {worker.pid for worker in workers(kernel.directory)}
    kernel.interrupt()
    assert kernel.reply(message) == "KeyboardInterrupt"
    told = kernel.told()
    assert kernel.run("assert record(1_000_000); flush()") == "ok"
    assert {worker.pid for worker in workers(kernel.directory)} >= pids
    (path,) = files(kernel.directory)
    found = steps(path)
    assert found[-1] == 1_000_000
    assert agree(found[:-1], told)
    assert kernel.run("recorder.close()") == "ok"
    assert workers(kernel.directory) == []
    assert steps(path) == found
