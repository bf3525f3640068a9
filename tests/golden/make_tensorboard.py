"""Make the files in `tensorboard/` with the writers of torch 2.13 and TensorBoard 2.21: `make_tensorboard.py DIR`.

They are kept as they were written, so that reading them needs neither.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.plugins.histogram import metadata as histogram
from tensorboard.plugins.image import metadata as image
from tensorboard.plugins.scalar import metadata as scalar
from tensorboard.plugins.text import metadata as text
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util
from torch.utils.tensorboard import SummaryWriter
from torch.utils.tensorboard.summary import hparams

DTYPES = [
    "float32",
    "float64",
    "int32",
    "int64",
    "uint8",
    "int8",
    "bool",
    "float16",
    "uint16",
    "uint32",
    "uint64",
    "int16",
]


def old_style(folder: Path) -> None:
    """Values with a field a kind, as torch writes them."""
    writer = SummaryWriter(str(folder))
    for step in range(20):
        writer.add_scalar("loss", 1 / (step + 1), step, walltime=1000.0 + step)
        writer.add_scalar("wide/long name", step * 0.1, step, walltime=1000.0 + step)
    for step, value in enumerate((float("nan"), float("inf"))):
        writer.add_scalar("x", value, step, walltime=1000.0 + step)
    writer.add_histogram("weights", np.arange(100, dtype="f4") / 100, 3, bins=10, walltime=1003.0)
    writer.add_image("picture", (np.arange(60) * 4).astype("u1").reshape(3, 4, 5), 5, walltime=1005.0)
    writer.add_text("note", "first\nsecond", 7, walltime=1007.0)
    writer.close()


def hyperparameters(folder: Path) -> None:
    writer = SummaryWriter(str(folder))
    for summary in hparams({"lr": 0.1, "name": "sgd", "nesterov": True}, {"accuracy": 0.5}):
        writer.file_writer.add_summary(summary, walltime=1.0)
    writer.close()


def new_style(folder: Path) -> None:
    """Tensors whose metadata name a plugin, those of `accuracy` in its first event only."""
    writer = EventFileWriter(str(folder))

    def add(step: int, tag: str, array: object, metadata: object = None) -> None:
        value = summary_pb2.Summary.Value(tag=tag, tensor=tensor_util.make_tensor_proto(array))
        if metadata is not None:
            value.metadata.CopyFrom(metadata.create_summary_metadata(display_name="", description=""))
        summary = summary_pb2.Summary(value=[value])
        writer.add_event(event_pb2.Event(wall_time=2000.0 + step, step=step, summary=summary))

    for step in range(30):
        add(step, "accuracy", np.float32(step / 7), None if step else scalar)
    for step in range(3):
        add(step, "double", np.float64(0.1 + step), scalar)
    add(1, "integer", np.int64(12345678901), scalar)
    add(2, "hist", np.array([[0, 1, 3], [1, 2, 4]], "f8"), histogram)
    png = io.BytesIO()
    Image.fromarray(np.arange(20, dtype="u1").reshape(4, 5)).save(png, "PNG")
    add(3, "pic", np.array([b"5", b"4", png.getvalue()], object), image)
    add(4, "words", np.array([[b"a", b"b"], [b"c", "\u00e9".encode()]], object), text)
    for name in DTYPES:
        add(5, f"t/{name}", np.array([[1, 0, 2], [3, 4, 5]]).astype(name))
    writer.close()


if __name__ == "__main__":
    out = Path(sys.argv[1])
    old_style(out / "torch")
    hyperparameters(out / "hparams")
    new_style(out / "styles")
