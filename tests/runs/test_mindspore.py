"""Files that MindSpore itself wrote."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from instrument import read
from instrument.codec import graph, image

HAS_MINDSPORE = importlib.util.find_spec("mindspore") is not None
VERSION = tuple(map(int, importlib.metadata.version("mindspore").split(".")[:2])) if HAS_MINDSPORE else (0, 0)
pytestmark = pytest.mark.skipif(not HAS_MINDSPORE, reason="needs MindSpore")

RECORD = """
import math, sys
import mindspore as ms
import numpy as np
ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
with ms.SummaryRecord(sys.argv[1]) as record:
    for step, number in enumerate([0.0, 0.1, math.nan, math.inf]):
        record.add_value("scalar", "loss", ms.Tensor(np.float32(number)))
        record.add_value("tensor", "w", ms.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) + step))
        record.add_value("histogram", "h", ms.Tensor(np.array([1, 2, 3, 4], np.float32)))
        record.add_value("image", "i", ms.Tensor(np.zeros((2, 3, 4, 5), np.float32)))
        record.record(step)
"""

COLLECT = """
import sys
import mindspore as ms
import numpy as np
from mindspore import dataset, nn
ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
rows = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
data = dataset.NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"], shuffle=False).batch(2)
net = nn.Dense(4, 1)
model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
collector = ms.SummaryCollector(sys.argv[1], collect_freq=1, custom_lineage_data={"version": "one", "n": 3})
model.train(2, data, callbacks=[collector], dataset_sink_mode=False)
"""


def test_a_summary_record_reads_exactly(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Scalars, tensors, histograms and images of `mindspore.SummaryRecord` come back as recorded."""
    run_python(f"import sys; sys.argv.append({str(tmp_path)!r})\n{RECORD}")

    run = read(tmp_path)

    assert run.damage == []
    assert run.tags() == {"scalar": ["loss"], "image": ["i"], "tensor": ["w"], "histogram": ["h"]}
    expected = np.array([0.0, np.float32(0.1), math.nan, math.inf])
    np.testing.assert_array_equal(run.scalars("loss").value, expected)
    assert run.scalars("loss").step.tolist() == [0, 1, 2, 3]
    for step in range(4):
        assert run.tensors("w")[step].tolist() == [
            [0.0 + step, 1.0 + step, 2.0 + step],
            [3.0 + step, 4.0 + step, 5.0 + step],
        ]
    histogram = run.histograms("h")[3]
    assert (histogram.count, histogram.min, histogram.max, histogram.sum) == (4, 1.0, 4.0, 10.0)
    assert histogram.counts.sum() == 4
    assert image.pixels(run.images("i")[0]).shape == (4, 10, 3)


@pytest.mark.skipif(VERSION < (2, 10), reason="MindSpore's own collector fails on lineage with a new protobuf")
def test_a_summary_collector_reads_whole(tmp_path: Path, run_python: Callable[..., str]) -> None:
    """Loss, weights, graph and lineage of `mindspore.SummaryCollector`; a step that it writes twice counts once."""
    run_python(f"import sys; sys.argv.append({str(tmp_path)!r})\n{COLLECT}")

    run = read(tmp_path)

    assert run.damage == []
    assert run.tags()["scalar"] == ["loss/auto"]
    assert run.scalars("loss/auto").step.tolist() == list(range(1, 9))
    assert np.isfinite(run.scalars("loss/auto").value).all()
    assert len(run.tags()["histogram"]) == 2
    assert run.graph is not None
    assert any(node.op_type == "MatMul" for node in graph.nodes(run.graph))
    assert run.lineage["custom"] == {"version": "one", "n": 3}
    assert run.lineage["train"]["hyper_parameters"]["optimizer"] == "Momentum"
    assert run.lineage["train"]["hyper_parameters"]["epoch"] == 2
    assert run.lineage["dataset"]["op_type"] == "Batch"
    assert sorted(run.lineage) == ["custom", "dataset", "train"]
