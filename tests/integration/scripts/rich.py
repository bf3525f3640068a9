"""A run with everything in it, for a reader that is not ours: a training, and two recorders open on its directory.

rich.py DIRECTORY
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import digits
import mindspore as ms
import numpy as np
from mindspore.train import summary_pb2

from instrument import SummaryCollector, SummaryRecord

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64",
)  # fmt: skip
TAGS = [
    "a b",
    "a/b[:Scalar]",
    "/a//b",
    "准确率 %",
    "x" * 5000,
    "line\nbreak",
    "nul\0byte",
    "..",
    "😀",
    "a\\b",
    "<b>&amp;",
]
NUMBERS = [0.5, 0.1, float("nan"), float("inf"), float("-inf"), 1e300, -0.0, 2**24 + 1]


def landscape() -> Any:
    message = summary_pb2.LossLandscape()
    message.landscape.z.dims.extend([2, 3])
    message.landscape.z.data_type = 11
    message.landscape.z.float_data.extend(np.arange(6) / 8)
    for axis, count in ((message.landscape.x, 2), (message.landscape.y, 3)):
        axis.dims.append(count)
        axis.data_type = 11
        axis.float_data.extend(np.arange(count) / 4)
    for axis in (message.loss_path.points.x, message.loss_path.points.y, message.loss_path.points.z):
        axis.dims.append(3)
        axis.data_type = 11
        axis.float_data.extend([0.5, 0.25, 0.125])
    message.loss_path.intervals.extend([1, 2, 3])
    message.metadata.decomposition, message.metadata.unit, message.metadata.step_per_epoch = "PCA", "epoch", 9
    return message


def record(first: SummaryRecord, second: SummaryRecord) -> None:
    rng = np.random.default_rng(5)
    for step, number in enumerate(NUMBERS, start=1):
        first.add_value("scalar", "first/number", number)
        second.add_value("scalar", "second/number", -number)
        first.add_value("tensor", "first/t", np.array([[number, 1.0]], np.float64))
        second.add_value("histogram", "second/h", np.append(rng.standard_normal(50), number))
        assert first.record(step)
        assert second.record(step)
    for number, tag in enumerate(TAGS):
        first.add_value("scalar", tag, float(number))
        first.add_value("tensor", tag, np.array([number, 2], np.int8))
    for dtype in DTYPES:
        array = rng.integers(0, 100, 6).astype(dtype).reshape(2, 3)
        if dtype != "bool":
            limits = np.iinfo(dtype) if "int" in dtype else np.finfo(dtype)
            array[0, :2] = limits.min, limits.max
        second.add_value("tensor", f"dtype/{dtype}", array)
        second.add_value("histogram", f"dtype/{dtype}", array)
        second.add_value("scalar", f"dtype/{dtype}", array[1, 0])
    second.add_value("tensor", "dtype/bfloat16", ms.Tensor([1.5, 1 / 3, float("nan")], ms.float32).astype(ms.bfloat16))
    second.add_value("tensor", "point", np.float32(2.5))
    second.add_value("tensor", "not finite", np.array([np.nan, np.inf, -np.inf, 1], np.float32))
    for tag, array in (
        ("constant", np.full(100, 7)), ("nothing finite", np.array([np.nan, np.inf, -np.inf, np.inf])),
        ("nothing", np.zeros(0)), ("large", np.array([1.7e308, -1.7e308])), ("many", rng.standard_normal(5000)),
    ):  # fmt: skip
        second.add_value("histogram", tag, array)
    second.add_value("image", "bytes", rng.integers(0, 256, (9, 3, 6, 5), np.uint8))
    second.add_value("image", "floats", rng.standard_normal((2, 1, 7, 4)))
    second.add_value("image", "not finite", np.array([[[[np.nan, 0.5], [np.inf, 1.0]]]]))
    second.add_value("landscape", "landscape_[1, 2, 3]", landscape())
    # Larger than what lies between the recorder and its worker: in the file before its step is known.
    first.add_value("tensor", "ahead", rng.standard_normal((500, 400)))
    assert first.record(1000)
    assert second.record(1000)


def main(directory: Path) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    collector = SummaryCollector(
        directory / "run", collect_freq=3, num_process=2, custom_lineage_data={"data": "digits", "scale": 0.0625}
    )
    digits.train([collector])
    small = SummaryRecord(directory / "run", num_process=1, queue_bytes=1 << 20)
    with small as first, SummaryRecord(directory / "run") as second:
        record(first, second)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
