"""One module a device: start, stop, and the raw files of a window in a directory.

A backend is made at the first window, when the device is known. It never reads what it collects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib import import_module
from typing import Protocol

from instrument.errors import FrameworkError
from instrument.profiler.options import Options, warn_of_no_effect

log = logging.getLogger("instrument")


class Backend(Protocol):
    """The profiler of one device. Each call may raise whatever the framework raises."""

    #: "cpu", "ascend" or "gpu", as the trace has it.
    kind: str
    #: The options that do something here.
    effective: frozenset[str]

    def prepare(self) -> None:
        """Do what takes time, once."""

    def expect(self, is_next: bool) -> None:
        """The next step opens a window: record what comes before it, its data. With False it does not after all."""

    def start(self, directory: str) -> None:
        """Begin a window whose files go to `directory`, which is empty."""

    def stop(self) -> None:
        """End it. The files are complete when this returns."""

    def facts(self) -> dict[str, object]:
        """What else is to be said of the window that was ended, by the keys of the trace's metadata."""

    def kind_of(self, name: str) -> str:
        """Whose file `name` is: "minddata", or the device's."""


Maker = Callable[[Options], Backend]

_HOMES = {
    "CPU": ("instrument.profiler.backends.cpu", "CpuBackend"),
    "Ascend": ("instrument.profiler.backends.ascend", "AscendBackend"),
    "GPU": ("instrument.profiler.backends.gpu", "GpuBackend"),
}


def maker(target: str) -> Maker:
    """What makes the backend for a device.

    Raises:
        FrameworkError: there is none for it.
    """
    if target not in _HOMES:
        raise FrameworkError(f"There is no profiler for the device {target!r}; there are {', '.join(_HOMES)}.")
    module, name = _HOMES[target]
    found: Maker = getattr(import_module(module), name)
    return found


def create(target: str, options: Options) -> Backend:
    """The backend for a device; MindSpore's public profiler where the CPU's is not to be had."""
    try:
        backend = maker(target)(options)
    except FrameworkError as error:
        if target != "CPU":
            raise
        from instrument.profiler.backends.public import PublicBackend

        log.warning("Profiler: %s MindSpore's public profiler is used instead.", error)
        backend = PublicBackend("cpu", options)
    warn_of_no_effect(options, target, backend.effective)
    return backend


def is_pipeline_file(name: str) -> bool:
    """Whether MindSpore's data pipeline writes files of this name."""
    return name.rpartition("/")[2].startswith(
        ("pipeline_profiling_", "dataset_iterator_profiling_", "device_queue_profiling_", "minddata_")
    )
