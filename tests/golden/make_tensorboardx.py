"""Make the file in `tensorboard/tensorboardx/` with the writer of tensorboardX 2.6: `make_tensorboardx.py DIR`.

It is kept as it was written, so that reading it needs no tensorboardX.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from tensorboardX import SummaryWriter


def write(folder: Path) -> None:
    writer = SummaryWriter(str(folder))
    for step in range(20):
        writer.add_scalar("loss/train", 1 / (step + 1), step, walltime=1_700_000_000.0 + step)
        writer.add_scalars("curves", {"a": step, "b": -step}, step, walltime=1_700_000_000.0 + step)
    writer.add_histogram("weights", np.arange(100) / 7, 3, walltime=1_700_000_003.0)
    writer.add_image("picture", np.arange(48, dtype=np.uint8).reshape(3, 4, 4), 4, walltime=1_700_000_004.0)
    writer.add_text("note", "**words**", 5, walltime=1_700_000_005.0)
    writer.add_hparams({"lr": 0.1, "optimizer": "sgd"}, {"accuracy": 0.5}, name="hparams")
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
