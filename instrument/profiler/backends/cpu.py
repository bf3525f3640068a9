"""The CPU: MindSpore's own profiler of operators, given a directory for each window, and the data pipeline's beside it.

Operators have a name, start (wall-clock nanoseconds since the epoch), duration and thread. Memory is the pool's size
over time, in a file that also repeats what earlier windows saw.
"""

from __future__ import annotations

import logging

from instrument import framework
from instrument.profiler.backends.minddata import PIPELINE
from instrument.profiler.options import Options, ProfilerActivity

log = logging.getLogger("instrument")


def arm(options: Options) -> None:
    """Record the data pipelines whose iterators are built from now on."""
    if options.data_process is not False:
        PIPELINE.arm()


class CpuBackend:
    """Operators, memory and the data pipeline of a training on the CPU.

    Raises:
        FrameworkError: MindSpore lacks what that needs.
    """

    kind = "cpu"
    effective = frozenset({"profile_memory", "data_process"})

    def __init__(self, options: Options) -> None:
        self._options = options
        self._profiler = framework.cpu_profiler()
        self._said_no_pipeline = False

    def prepare(self) -> None:
        arm(self._options)

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
        if not PIPELINE.stop() and self._options.data_process and not self._said_no_pipeline:
            self._said_no_pipeline = True
            log.warning(
                "Profiler: data_process=True, but no data pipeline was recorded: make the Profiler before the iterator "
                "over the dataset, or before model.train."
            )

    def facts(self) -> dict[str, object]:
        return {"pipelines_not_recorded": PIPELINE.missed} if self._options.data_process is not False else {}
