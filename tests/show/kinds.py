"""One directory or file of every kind that somebody may give to the command line."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np

from instrument.codec import lineage
from instrument.show.cli import main
from instrument.values import ArrayItem, Event, MessageItem
from instrument.write.factory import open_sink
from instrument.write.sink import Target
from tests.analyse.files import cpu_window, directory_of, event_file
from tests.runs.build import write
from tests.show.runs import EVIL, every_kind, training
from tests.show.surfaces import plane, write_run

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
Build = Callable[[Path], Path]


def dialect(name: str) -> Build:
    """A run that the recorder wrote, with a value of each kind that both dialects have."""

    def build(path: Path) -> Path:
        sink = open_sink(Target(str(path), dialect=name), 0)
        for step in range(1, 4):
            ramp = np.arange(12, dtype=np.float32) + step
            items = [
                ArrayItem("tensor", "t", ramp.reshape(3, 4), "float32"),
                ArrayItem("histogram", "h", ramp),
                ArrayItem("image", "p", (ramp / 30).reshape(1, 1, 3, 4)),
                MessageItem("custom_lineage_data", "info", lineage.custom_message({"lr": 0.5})),
            ]
            sink.write(Event(step, 1000.0 + step, items, {"loss": step / 3}))
        sink.close()
        return path

    return build


def golden(name: str) -> Build:
    """Files that somebody else's writer made."""
    return lambda path: Path(shutil.copytree(GOLDEN / name, path))


def exported(to: str) -> Build:
    def build(path: Path) -> Path:
        run = every_kind(path.parent / f"{path.name}_source")
        assert main(["export", str(run), "--to", to, "-o", str(path)]) == 0
        return path

    return build


def damaged(path: Path) -> Path:
    """A run whose file has a flipped byte in its middle and ends inside a frame."""
    events = [Event(step, 1000.0 + step, (), {"loss": 1 / step, "layer_10/w": 0.5}) for step in range(1, 200)]
    file = write(path, events)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x10
    file.write_bytes(content[:-3])
    return path


def garbage(path: Path) -> Path:
    """Files with the names of event files that hold something else."""
    path.mkdir()
    contents = (b"", b"hello\n", bytes(1000), b"version https://git-lfs.github.com/spec/v1\n", os.urandom(5000))
    for number, content in enumerate(contents):
        (path / f"events.out.events.summary.{number}.0.host_MS").write_bytes(content)
        (path / f"events.out.tfevents.{number}.host").write_bytes(content)
    return path


def evil_names(path: Path) -> Path:
    """Tags that try to disturb a terminal, a page or a spreadsheet, and very long and wide ones."""
    names = [*EVIL, "x" * 3000, "訓練/損失/" * 40, "e\u0301" * 200, "\N{ROCKET}" * 90, "a/b/" * 100 + "loss"]
    write(path, [Event(step, 1e9 + step, (), dict.fromkeys(names, 1e-300 * step)) for step in (1, 10**15)])
    return path


def many_ranks(path: Path) -> Path:
    for rank in range(64):
        write(path, [Event(step, 1e9 + step, (), {"loss": float(rank)}) for step in (1, 2)], device=rank)
    return path


def profiled(path: Path) -> Path:
    event_file(path, [cpu_window()])
    return path


def file_of(content: bytes) -> Build:
    def build(path: Path) -> Path:
        path.write_bytes(content)
        return path

    return build


def directory_as_file(path: Path) -> Path:
    """A directory that is called like an event file."""
    (path / "events.out.events.summary.1700000000.0.host_MS").mkdir(parents=True)
    return path


def link(path: Path) -> Path:
    path.symlink_to("nowhere")
    return path


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def empty(path: Path) -> Path:
    path.mkdir()
    return path


def landscape(path: Path) -> Path:
    return write_run(path, plane())


def tree(path: Path) -> Path:
    """Several runs at different depths, one of which is damaged, and a link that leads nowhere."""
    training(path / "a" / "run_2", [3.0, 2.0], [0.5], rate=0.5, seed=1)
    training(path / "a" / "run_10", [3.0, 1.0], rate=0.25, seed=2)
    damaged(path / "b")
    dialect("tensorboard")(path / "c")
    (path / "broken").symlink_to("nowhere")
    return path


#: Kind -> how it is made; what is a run or holds some.
RUNS: dict[str, Build] = {
    "mindspore": dialect("mindspore"),
    "tensorboard": dialect("tensorboard"),
    "both": dialect("both"),
    "every kind": every_kind,
    "torch": golden("tensorboard/torch"),
    "tensorboard's writer": golden("tensorboard/styles"),
    "tensorboard's hparams": golden("tensorboard/hparams"),
    "tensorboardX": golden("tensorboard/tensorboardx"),
    "mindspore's collector": golden("mindspore"),
    "exported to tensorboard": exported("tensorboard"),
    "damaged": damaged,
    "evil names": evil_names,
    "64 ranks": many_ranks,
    "landscape": landscape,
    "tree": tree,
}
#: What has no run, though some of it has a profile or the names of event files.
OTHERS: dict[str, Build] = {
    "profile": profiled,
    "raw traces": lambda path: directory_of(path, cpu_window()),
    "garbage": garbage,
    "exported to csv": exported("csv"),
    "exported to json": exported("json"),
    "exported to npy": exported("npy"),
    "empty": empty,
    "text file": file_of(b"hello\n"),
    "torch's trace": file_of(gzip.compress(b'{"traceEvents": [{"ph": "X", "ts": 1}]}')),
    "binary file": file_of(bytes(range(256)) * 10),
    "directory as a file": directory_as_file,
    "broken link": link,
    "pipe": pipe,
    "missing": lambda path: path,
}
