"""The writers side by side: ours, its peers as their users call them, and the limit.

Each class calls one library with its defaults. The libraries are imported when a class is made, by name: ours and
MindSpore stand in one environment, torch and TensorBoard in another.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

import numpy as np
from workloads import SCALAR_TAGS, SCALARS_A_STEP

#: The slowest writer takes a quarter of a second for 4 MB.
_QUIET_S = 0.6


class Writer:
    """What is measured. Values are what `hold` made of a float or an array; `step` counts from 0."""

    def hold(self, value: Any) -> Any:
        """Turn a float or an array into what a user of this library has in hands."""
        return value

    def open(self, folder: str) -> None:
        raise NotImplementedError

    def scalar(self, step: int, values: Sequence[Any]) -> None:
        """Record five scalars."""
        raise NotImplementedError

    def tensor(self, step: int, value: Any) -> None:
        raise NotImplementedError

    def histogram(self, step: int, value: Any) -> None:
        raise NotImplementedError

    def image(self, step: int, value: Any) -> None:
        raise NotImplementedError

    def after_step(self) -> None:
        """Work that belongs to a step, but not to what its caller pays."""

    def settle(self, folder: str) -> None:
        """Return when nothing is on its way to the files any more: when they have not grown for a while."""
        size, since = -1, 0.0
        while size != (now := _size_bytes(folder)) or time.monotonic() - since < _QUIET_S:
            if size != now:
                size, since = now, time.monotonic()
            time.sleep(0.02)

    def close(self) -> None:
        raise NotImplementedError

    def collector(self, folder: str, every: int) -> Any:
        """A callback that collects default data every so many steps."""
        raise NotImplementedError

    def packages(self) -> tuple[str, ...]:
        """The distributions that its figures depend on."""
        return ("numpy",)


class MindSpore(Writer):
    """`mindspore.SummaryRecord`: all of a step is one event, written by processes."""

    library = "mindspore"

    def __init__(self) -> None:
        self._mindspore = import_module("mindspore")
        self._mindspore.set_context(device_target="CPU")
        library = import_module(self.library)
        self._record_class, self._collector_class = library.SummaryRecord, library.SummaryCollector

    def hold(self, value: Any) -> Any:
        return self._mindspore.Tensor(value, self._mindspore.float32)

    def open(self, folder: str) -> None:
        self._record = self._record_class(folder)

    def scalar(self, step: int, values: Sequence[Any]) -> None:
        record = self._record
        for tag, value in zip(SCALAR_TAGS, values, strict=True):
            record.add_value("scalar", tag, value)
        record.record(step)

    def tensor(self, step: int, value: Any) -> None:
        self._record.add_value("tensor", "value", value)
        self._record.record(step)

    def histogram(self, step: int, value: Any) -> None:
        self._record.add_value("histogram", "value", value)
        self._record.record(step)

    def image(self, step: int, value: Any) -> None:
        self._record.add_value("image", "value", value)
        self._record.record(step)

    def close(self) -> None:
        self._record.close()

    def collector(self, folder: str, every: int) -> Any:
        return self._collector_class(folder, collect_freq=every)

    def packages(self) -> tuple[str, ...]:
        return ("mindspore", "numpy", "protobuf", "pillow")


class Ours(MindSpore):
    """`instrument.SummaryRecord`, with MindSpore's tensors and call forms."""

    library = "instrument"

    def settle(self, folder: str) -> None:
        self._record.flush()

    def packages(self) -> tuple[str, ...]:
        return ("mindspore", "numpy", "protobuf", "pillow", "crc32c")


class TensorboardX(Writer):
    """`tensorboardX.SummaryWriter`, with the crc32c package, which it takes where it is there."""

    def __init__(self) -> None:
        self._writer_class = import_module("tensorboardX").SummaryWriter
        self._summary = import_module("tensorboardX.proto.summary_pb2").Summary
        self._tensor = import_module("tensorboardX.proto.tensor_pb2").TensorProto
        self._shape = import_module("tensorboardX.proto.tensor_shape_pb2").TensorShapeProto

    def open(self, folder: str) -> None:
        self._writer = self._writer_class(folder)

    def scalar(self, step: int, values: Sequence[Any]) -> None:
        for tag, value in zip(SCALAR_TAGS, values, strict=True):
            self._writer.add_scalar(tag, value, step)

    def tensor(self, step: int, value: Any) -> None:
        # There is no add_tensor: this is the least that a user could write.
        shape = self._shape(dim=[self._shape.Dim(size=size) for size in value.shape])
        tensor = self._tensor(dtype="DT_FLOAT", tensor_shape=shape, tensor_content=value.tobytes())
        summary = self._summary(value=[self._summary.Value(tag="value", tensor=tensor)])
        self._writer.file_writer.add_summary(summary, step)

    def histogram(self, step: int, value: Any) -> None:
        self._writer.add_histogram("value", value, step)

    def image(self, step: int, value: Any) -> None:
        self._writer.add_images("value", value, step)

    def close(self) -> None:
        self._writer.close()

    def packages(self) -> tuple[str, ...]:
        return ("tensorboardX", "numpy", "protobuf", "crc32c", "pillow")


class Torch(TensorboardX):
    """`torch.utils.tensorboard.SummaryWriter`, which has tensorboardX's calls and add_tensor."""

    def __init__(self) -> None:
        self._torch = import_module("torch")
        self._writer_class = import_module("torch.utils.tensorboard").SummaryWriter

    def hold(self, value: Any) -> Any:
        return self._torch.from_numpy(value) if isinstance(value, np.ndarray) else value

    def tensor(self, step: int, value: Any) -> None:
        self._writer.add_tensor("value", value, step)

    def packages(self) -> tuple[str, ...]:
        return ("torch", "tensorboard", "numpy", "protobuf", "pillow")


class TensorBoard(Writer):
    """TensorBoard's `EventFileWriter` and hand-made events: the least that its Python code can do."""

    def __init__(self) -> None:
        self._event = import_module("tensorboard.compat.proto.event_pb2").Event
        self._make_tensor = import_module("tensorboard.util.tensor_util").make_tensor_proto
        self._writer_class = import_module("tensorboard.summary.writer.event_file_writer").EventFileWriter

    def open(self, folder: str) -> None:
        self._writer = self._writer_class(folder)

    def scalar(self, step: int, values: Sequence[Any]) -> None:
        event = self._event(wall_time=time.time(), step=step)
        for tag, value in zip(SCALAR_TAGS, values, strict=True):
            event.summary.value.add(tag=tag, simple_value=value)
        self._writer.add_event(event)

    def tensor(self, step: int, value: Any) -> None:
        event = self._event(wall_time=time.time(), step=step)
        event.summary.value.add(tag="value", tensor=self._make_tensor(value))
        self._writer.add_event(event)

    def close(self) -> None:
        self._writer.close()

    def packages(self) -> tuple[str, ...]:
        return ("tensorboard", "numpy", "protobuf")


class Limit(Writer):
    """No recorder: what its caller must pay is a copy into shared memory that was touched before; the rest of a step
    is NumPy's histogram or Pillow's PNG, and one `write` of the result, in the same thread."""

    _RING_BYTES = 160 << 20
    _SCALARS = struct.Struct(f"<dq{SCALARS_A_STEP}f")

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, self._RING_BYTES)
        self._ring = np.frombuffer(self._memory, np.uint8)
        self._ring[:] = 0
        self._position = 0
        self._last: Any = None
        self._finish = self._write

    def open(self, folder: str) -> None:
        self._fd = os.open(os.path.join(folder, "limit"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)

    def scalar(self, step: int, values: Sequence[Any]) -> None:
        self._SCALARS.pack_into(self._memory, self._position, time.time(), step, *values)
        self._position += self._SCALARS.size

    def tensor(self, step: int, value: Any) -> None:
        self._copy(value)

    def histogram(self, step: int, value: Any) -> None:
        self._copy(value)
        self._finish = self._write_histogram

    def image(self, step: int, value: Any) -> None:
        self._copy(value)
        self._shape = value.shape
        self._finish = self._write_png

    def _copy(self, value: Any) -> None:
        if self._position + value.nbytes > self._RING_BYTES:
            self._position = 0
        end = self._position + value.nbytes
        self._last = self._ring[self._position : end]
        self._last[:] = value.reshape(-1).view(np.uint8)
        self._position = end

    def after_step(self) -> None:
        if self._last is not None:
            self._finish()

    def _write(self) -> None:
        os.write(self._fd, self._last)

    def _write_histogram(self) -> None:
        os.write(self._fd, count(self._last.view(np.float32)))

    def _write_png(self) -> None:
        os.write(self._fd, encode_png(grid(self._last.view(np.float32).reshape(self._shape))))

    def settle(self, folder: str) -> None:
        pass

    def close(self) -> None:
        if self._last is None:
            os.write(self._fd, self._ring[: self._position].data)
        os.close(self._fd)

    def packages(self) -> tuple[str, ...]:
        return ("numpy", "pillow")


def _size_bytes(folder: str) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())


def count(array: Any) -> Any:
    """NumPy's histogram with the 90 buckets that MindSpore and MindInsight know."""
    edges = np.linspace(array.min(), array.max(), 91)
    return np.histogram(array, bins=edges)[0]


def grid(batch: Any) -> Any:
    """A (32, 3, 224, 224) batch as one picture of 4 x 8, (896, 1792, 3) uint8, as all these writers make it."""
    pixels = (batch * 255).astype(np.uint8).reshape(4, 8, 3, 224, 224)
    return np.ascontiguousarray(pixels.transpose(0, 3, 1, 4, 2)).reshape(4 * 224, 8 * 224, 3)


def encode_png(pixels: Any, **options: Any) -> bytes:
    """A picture as PNG, by Pillow."""
    from PIL import Image

    data = BytesIO()
    Image.fromarray(pixels).save(data, "png", **options)
    return data.getvalue()


CLASSES: dict[str, type[Writer]] = {
    "limit": Limit,
    "ours": Ours,
    "mindspore": MindSpore,
    "torch": Torch,
    "tensorboardX": TensorboardX,
    "tensorboard": TensorBoard,
}
#: Those whose libraries stand in the environment of the peers.
PEERS = ("torch", "tensorboardX", "tensorboard")
