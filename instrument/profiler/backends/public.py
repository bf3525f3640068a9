"""MindSpore's public profiler, for devices whose raw interface is MindSpore's alone. Its files are taken over.

It analyses each window itself when it ends (with a device's own tools, which need the device's host), and both its raw
files and its tables are in the directory afterwards.
"""

from __future__ import annotations

import inspect
import logging
import os
from enum import Enum
from typing import Any

from mindspore import profiler as mindspore_profiler

from instrument.profiler.options import Options

log = logging.getLogger("instrument")

_DIRECT = (
    "activities", "with_stack", "profile_memory", "data_process", "parallel_strategy", "hbm_ddr", "pcie", "sync_enable",
    "record_shapes",
)  # fmt: skip
_EXPERIMENTAL = (
    "profiler_level", "aic_metrics", "l2_cache", "mstx", "data_simplification", "export_type", "mstx_domain_include",
    "mstx_domain_exclude", "sys_io", "sys_interconnection", "host_sys",
)  # fmt: skip


class PublicBackend:
    """A window is one `mindspore.profiler.profile` with a directory of its own. On the CPU it is a substitute."""

    kind = "cpu"
    effective = frozenset((*_DIRECT, *_EXPERIMENTAL))

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profile: Any = None
        self._directory = ""

    def prepare(self) -> None:
        """Do nothing: MindSpore prepares itself when it starts."""

    def expect(self, is_next: bool) -> None:
        """Do nothing: MindSpore starts all of its parts at once."""

    def start(self, directory: str) -> None:
        self._directory = directory
        handler = mindspore_profiler.tensorboard_trace_handler(directory)
        direct = {name: _to_mindspore(getattr(self._options, name)) for name in _DIRECT}
        direct["data_process"] = bool(direct["data_process"])
        self._profile = mindspore_profiler.profile(
            **direct, start_profile=False, on_trace_ready=handler, experimental_config=self._experimental()
        )
        self._profile.start()

    def _experimental(self) -> Any:
        config = mindspore_profiler._ExperimentalConfig
        accepted = inspect.signature(config).parameters
        names = [name for name in _EXPERIMENTAL if name in accepted]
        return config(**{name: _to_mindspore(getattr(self._options, name)) for name in names})

    def stop(self) -> None:
        profile, self._profile = self._profile, None
        profile.stop()
        if not any(files for _, _, files in os.walk(self._directory)):  # MindSpore logs its errors and goes on
            log.error("Profiler: MindSpore's profiler left no file in %s; its log says why.", self._directory)

    def facts(self) -> dict[str, object]:
        return {}


class AscendBackend(PublicBackend):
    """Task, step and AI CPU records of the device, the host's side of them, memory and the data pipeline."""

    kind = "ascend"


class GpuBackend(PublicBackend):
    """Kernels, activities and steps of the device, and the data pipeline."""

    kind = "gpu"
    effective = frozenset({"activities", "profile_memory", "data_process", "sync_enable"})


def _to_mindspore(value: Any) -> Any:
    """Return MindSpore's enumeration member of the same name, and a list for a tuple."""
    if isinstance(value, tuple):
        return [_to_mindspore(item) for item in value]
    if isinstance(value, Enum):
        return getattr(getattr(mindspore_profiler, type(value).__name__), value.name)
    return value
