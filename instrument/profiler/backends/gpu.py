"""GPUs: MindSpore's public profiler, which records kernels and activities by itself."""

from __future__ import annotations

from instrument.profiler.backends.public import PublicBackend
from instrument.profiler.options import Options


class GpuBackend(PublicBackend):
    """Kernels, activities and steps of the device, and the data pipeline."""

    effective = frozenset({"activities", "profile_memory", "data_process", "sync_enable"})

    def __init__(self, options: Options) -> None:
        super().__init__("gpu", options)
