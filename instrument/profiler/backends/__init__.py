"""The profilers of devices: start, stop, and the raw files of a window in a directory.

A backend is made at the first window, when the device is known. Only its own module is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from instrument.errors import FrameworkError
from instrument.profiler.backends.base import Backend
from instrument.profiler.options import Options, warn_of_no_effect

log = logging.getLogger("instrument")

_TARGETS = ("CPU", "Ascend", "GPU")


def maker(target: str) -> Callable[[Options], Backend]:
    """Return the class of a device's backend.

    Raises:
        FrameworkError: there is none for the device.
    """
    if target == "CPU":
        from instrument.profiler.backends.cpu import CpuBackend

        return CpuBackend
    if target not in _TARGETS:
        raise FrameworkError(f"There is no profiler for the device {target!r}; there are {', '.join(_TARGETS)}.")
    from instrument.profiler.backends.public import AscendBackend, GpuBackend

    return AscendBackend if target == "Ascend" else GpuBackend


def create(target: str, options: Options) -> Backend:
    """Make the backend of a device: MindSpore's public profiler if the CPU's own is not available."""
    try:
        backend = maker(target)(options)
    except FrameworkError as error:
        if target != "CPU":
            raise
        from instrument.profiler.backends.public import PublicBackend

        log.warning("Profiler: %s MindSpore's public profiler is used instead.", error)
        backend = PublicBackend(options)
    warn_of_no_effect(options, target, backend.effective)
    return backend
