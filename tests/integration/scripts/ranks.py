"""One rank of several that no launcher but the environment tells of: 200 steps, when all are ready to begin."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from instrument import SummaryRecord

STEPS = 200
PATIENCE_SECONDS = 60


def main(directory: Path) -> None:
    rank, ranks = (int(os.environ[name]) for name in ("RANK_ID", "RANK_SIZE"))
    (directory / f"ready_{rank}").touch()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(list(directory.glob("ready_*"))) < ranks and time.monotonic() < deadline:
        os.sched_yield()
    with SummaryRecord(directory / "run", export_options={"tensor_format": "npy"}) as record:
        for step in range(1, STEPS + 1):
            record.add_value("scalar", "loss", rank + 1 / step)
            if step == STEPS:
                record.add_value("tensor", "rank", np.array([rank], np.float32))
            record.record(step)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
