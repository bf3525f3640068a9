"""What TensorBoard's own reader finds in files, in an environment of its own.

`PYTHON tensorboard_frames.py`, with TensorBoard's Python, reads a path a line and answers a line each: a JSON list of
step and tags of each event.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module


def main() -> None:
    loader = import_module("tensorboard.backend.event_processing.event_file_loader").LegacyEventFileLoader
    for line in sys.stdin:
        events = list(loader(line.rstrip("\n")).Load())
        found = [[event.step, [value.tag for value in event.summary.value]] for event in events]
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
