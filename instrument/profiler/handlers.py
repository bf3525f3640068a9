"""Ready-made functions for `on_trace_ready`."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

from instrument.profiler.options import check_directory


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str], worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """Write the timeline of each window to `dir_name`, as `<worker>.<nanoseconds>.pt.trace.json`, with `.gz` if asked.

    `worker_name` is by default the host's name and this process's number.
    """
    directory = check_directory("dir_name", dir_name)
    worker = worker_name or f"{platform.node()}_{os.getpid()}"
    end = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"

    def export(profiler: Any) -> None:
        os.makedirs(directory, exist_ok=True)
        profiler.export_chrome_trace(os.path.join(directory, f"{worker}.{time.time_ns()}{end}"))

    return export
