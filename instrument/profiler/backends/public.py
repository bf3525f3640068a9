"""MindSpore's public profiler, for devices whose raw interface is MindSpore's alone; what it leaves is taken over.

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

from instrument.profiler.backends import is_pipeline_file
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
    """A window is one `mindspore.profiler.profile` with a directory of its own."""

    effective = frozenset((*_DIRECT, *_EXPERIMENTAL))

    def __init__(self, kind: str, options: Options) -> None:
        self.kind = kind
        self._options = options
        self._profile: Any = None
        self._directory = ""

    def prepare(self) -> None:
        """MindSpore makes all ready itself when it starts."""

    def expect(self, is_next: bool) -> None:
        """MindSpore starts all at once."""

    def start(self, directory: str) -> None:
        self._directory = directory
        handler = mindspore_profiler.tensorboard_trace_handler(directory)
        direct = {name: _theirs(getattr(self._options, name)) for name in _DIRECT}
        direct["data_process"] = bool(direct["data_process"])
        self._profile = mindspore_profiler.profile(
            **direct, start_profile=False, on_trace_ready=handler, experimental_config=self._experimental()
        )
        self._profile.start()

    def _experimental(self) -> Any:
        config = mindspore_profiler._ExperimentalConfig
        known = inspect.signature(config).parameters
        return config(**{name: _theirs(getattr(self._options, name)) for name in _EXPERIMENTAL if name in known})

    def stop(self) -> None:
        profile, self._profile = self._profile, None
        profile.stop()
        if not any(files for _, _, files in os.walk(self._directory)):  # MindSpore logs its errors and goes on
            log.error("Profiler: MindSpore's profiler left no file in %s; its log says why.", self._directory)

    def facts(self) -> dict[str, object]:
        return {}

    def kind_of(self, name: str) -> str:
        return "minddata" if is_pipeline_file(name) else self.kind


def _theirs(value: Any) -> Any:
    """Our members as MindSpore's of the same name, tuples as lists."""
    if isinstance(value, tuple):
        return [_theirs(one) for one in value]
    if isinstance(value, Enum):
        return getattr(getattr(mindspore_profiler, type(value).__name__), value.name)
    return value
