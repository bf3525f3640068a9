"""The profilers of devices: start, stop, and the raw files of a window in a directory.

The CPU has MindSpore's own profiler of operators, which takes a directory for each window, with the data pipeline's
beside it (`minddata`). Other devices have MindSpore's public profiler, since their raw interface is MindSpore's alone.
It analyses each window itself when the window ends, with the device's own tools, and its raw files and tables are both
in the directory afterwards.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from mindspore import profiler as mindspore_profiler

from instrument import framework
from instrument.errors import FrameworkError
from instrument.profiler.minddata import PIPELINE
from instrument.profiler.options import Options, ProfilerActivity, warn_of_no_effect

if TYPE_CHECKING:
    from mindspore.profiler import _ExperimentalConfig

log = logging.getLogger("instrument")

#: Options of MindSpore's public profiler, and those of its experimental configuration.
_DIRECT = (
    "activities", "with_stack", "profile_memory", "data_process", "parallel_strategy", "hbm_ddr", "pcie", "sync_enable",
    "record_shapes",
)  # fmt: skip
_EXPERIMENTAL = (
    "profiler_level", "aic_metrics", "l2_cache", "mstx", "data_simplification", "export_type", "mstx_domain_include",
    "mstx_domain_exclude", "sys_io", "sys_interconnection", "host_sys",
)  # fmt: skip


class Backend(Protocol):
    """The profiler of one device. It reads no file that it collects. Each call may raise what MindSpore raises."""

    #: "cpu", "ascend" or "gpu", as the trace has it.
    kind: str
    #: The options that have an effect on this device.
    effective: frozenset[str]

    def prepare(self) -> None:
        """Do what takes time, once."""

    def expect(self, is_next: bool) -> None:
        """Record the data that is loaded for the next step, which opens a window. With False, stop doing so."""

    def start(self, directory: str) -> None:
        """Begin a window whose files go to `directory`, which is empty."""

    def stop(self) -> None:
        """End the window. Its files are complete when this returns."""

    def facts(self) -> dict[str, object]:
        """Return what else is known of the window that has ended, by the keys of the trace's metadata."""


def create(target: str, options: Options) -> Backend:
    """Make the backend of a device: MindSpore's public profiler if the CPU's own is not available."""
    try:
        backend = maker(target)(options)
    except FrameworkError as error:
        if target != "CPU":
            raise
        log.warning("Profiler: %s MindSpore's public profiler is used instead.", error)
        backend = PublicBackend(options)
    warn_of_no_effect(options, target, backend.effective)
    return backend


def maker(target: str) -> Callable[[Options], Backend]:
    """Return the class of a device's backend.

    Raises:
        FrameworkError: there is none for the device.
    """
    if target not in _MAKERS:
        raise FrameworkError(f"There is no profiler for the device {target!r}; there are {', '.join(_MAKERS)}.")
    return _MAKERS[target]


def record_pipelines(options: Options) -> None:
    """Record the data pipelines whose iterators are built from now on."""
    if options.data_process is not False:
        PIPELINE.arm()


class CpuBackend:
    """Operators, memory and the data pipeline of a training on the CPU.

    Operators have a name, start (wall-clock nanoseconds since the epoch), duration and thread. Memory is the pool's
    size over time, in a file that also repeats what earlier windows saw.

    Raises:
        FrameworkError: MindSpore lacks what that needs.
    """

    kind = "cpu"
    effective = frozenset({"profile_memory", "data_process"})

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profiler = framework.cpu_profiler()
        self._is_missing_logged = False

    def prepare(self) -> None:
        record_pipelines(self._options)

    def expect(self, is_next: bool) -> None:
        if self._options.data_process is not False:
            if is_next:
                PIPELINE.start()
            else:
                PIPELINE.stop()

    def start(self, directory: str) -> None:
        self._profiler.init(directory)
        self._profiler.step_profiling_enable(True)
        if ProfilerActivity.CPU in self._options.activities:
            self._profiler.enable_op_time()
        if self._options.profile_memory:
            self._profiler.enable_profile_memory()
        if self._options.data_process is not False:
            PIPELINE.start(directory)

    def stop(self) -> None:
        self._profiler.stop()
        if self._options.data_process is False:
            return
        if not PIPELINE.stop() and self._options.data_process and not self._is_missing_logged:
            self._is_missing_logged = True
            log.warning(
                "Profiler: data_process=True, but no data pipeline was recorded: make the Profiler before the iterator "
                "over the dataset, or before model.train."
            )

    def facts(self) -> dict[str, object]:
        return {"pipelines_not_recorded": PIPELINE.missed} if self._options.data_process is not False else {}


class PublicBackend:
    """A window is one `mindspore.profiler.profile` with a directory of its own. On the CPU it is a substitute."""

    kind = "cpu"
    effective = frozenset((*_DIRECT, *_EXPERIMENTAL))

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profile: mindspore_profiler.profile | None = None
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

    def _experimental(self) -> _ExperimentalConfig:
        config = mindspore_profiler._ExperimentalConfig
        accepted = inspect.signature(config).parameters
        names = [name for name in _EXPERIMENTAL if name in accepted]
        return config(**{name: _to_mindspore(getattr(self._options, name)) for name in names})

    def stop(self) -> None:
        profile, self._profile = self._profile, None
        assert profile is not None
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


_MAKERS: dict[str, Callable[[Options], Backend]] = {"CPU": CpuBackend, "Ascend": AscendBackend, "GPU": GpuBackend}


def _to_mindspore(value: object) -> object:
    """Return MindSpore's enumeration member of the same name, and a list for a tuple."""
    if isinstance(value, tuple):
        return [_to_mindspore(item) for item in value]
    if isinstance(value, Enum):
        return getattr(getattr(mindspore_profiler, type(value).__name__), value.name)
    return value
