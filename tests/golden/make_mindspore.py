"""Make the files in `mindspore/` with the recorder of MindSpore 2.10: `make_mindspore.py DIR`.

They are kept as they were written, so that reading them needs no MindSpore.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import mindspore as ms
import numpy as np
from mindspore import dataset, nn

NAME = "events.out.events.summary.1700000000.0.host"


def recorded(folder: str) -> None:
    """Two steps of each kind that a `SummaryRecord` takes."""
    with ms.SummaryRecord(folder) as record:
        for step, number in enumerate([0.1, math.nan]):
            record.add_value("scalar", "loss", ms.Tensor(np.float32(number)))
            record.add_value("tensor", "w", ms.Tensor(np.arange(6, dtype=np.float32).reshape(2, 3) + step))
            record.add_value("histogram", "h", ms.Tensor(np.array([1, 2, 3, 4], np.float32)))
            record.add_value("image", "i", ms.Tensor(np.zeros((1, 1, 4, 5), np.float32)))
            record.record(step)


def collected(folder: str) -> None:
    """The lineage of a `SummaryCollector`."""
    rows = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
    data = dataset.NumpySlicesDataset((rows, rows[:, :1]), ["x", "y"], shuffle=False).batch(2)
    net = nn.Dense(4, 1)
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9))
    collector = ms.SummaryCollector(folder, custom_lineage_data={"version": "one", "n": 3})
    model.train(1, data, callbacks=[collector], dataset_sink_mode=False)


if __name__ == "__main__":
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    out = Path(sys.argv[1])
    for make, suffix in ((recorded, "_MS"), (collected, "_lineage")):
        with tempfile.TemporaryDirectory() as made:
            make(made)
            (path,) = Path(made).glob(f"*{suffix}")
            (out / f"{NAME}{suffix}").write_bytes(path.read_bytes())
