"""Ascend devices: MindSpore's public profiler, and the device's own files that it collects."""

from __future__ import annotations

from instrument.profiler.backends.public import PublicBackend
from instrument.profiler.options import Options


class AscendBackend(PublicBackend):
    """Task, step and AI CPU records of the device, the host's side of them, memory and the data pipeline."""

    def __init__(self, options: Options) -> None:
        super().__init__("ascend", options)
