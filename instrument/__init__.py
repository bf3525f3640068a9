"""Record what a MindSpore training run does, and read it back.

    from instrument import SummaryCollector
    model.train(10, dataset, callbacks=[SummaryCollector("./run")])

    from instrument import read
    read("./run").scalars("loss/auto").value

    from instrument import StopAtStep, profile
    model.train(10, dataset, callbacks=[StopAtStep(20, 29, "./run")])
    print(profile("./run"))

Names are resolved on first use: importing `instrument` does not load MindSpore.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instrument._version import __version__

if TYPE_CHECKING:
    from instrument.analyse.profile import Profile as Profile
    from instrument.analyse.profile import profile as profile
    from instrument.collect import ops as ops
    from instrument.collect.collector import SummaryCollector as SummaryCollector
    from instrument.collect.record import SummaryRecord as SummaryRecord
    from instrument.landscape.landscape import SummaryLandscape as SummaryLandscape
    from instrument.marks import span as span
    from instrument.profiler.callbacks import StopAtEpoch as StopAtEpoch
    from instrument.profiler.callbacks import StopAtStep as StopAtStep
    from instrument.profiler.options import AicoreMetrics as AicoreMetrics
    from instrument.profiler.options import ExportType as ExportType
    from instrument.profiler.options import ProfilerActivity as ProfilerActivity
    from instrument.profiler.options import ProfilerLevel as ProfilerLevel
    from instrument.profiler.profiler import Profiler as Profiler
    from instrument.profiler.profiler import tensorboard_trace_handler as tensorboard_trace_handler
    from instrument.profiler.schedule import ProfilerAction as ProfilerAction
    from instrument.profiler.schedule import schedule as schedule
    from instrument.runs.run import Run as Run
    from instrument.runs.run import find_runs as find_runs
    from instrument.runs.run import read as read

__all__ = [
    "AicoreMetrics", "ExportType", "Profile", "Profiler", "ProfilerAction", "ProfilerActivity", "ProfilerLevel", "Run",
    "StopAtEpoch", "StopAtStep", "SummaryCollector", "SummaryLandscape", "SummaryRecord", "__version__", "find_runs",
    "ops", "profile", "read", "schedule", "span", "tensorboard_trace_handler",
]  # fmt: skip

_HOMES = {
    "SummaryCollector": ("instrument.collect.collector", "SummaryCollector"),
    "SummaryRecord": ("instrument.collect.record", "SummaryRecord"),
    "SummaryLandscape": ("instrument.landscape.landscape", "SummaryLandscape"),
    "ops": ("instrument.collect.ops", None),
    "Profiler": ("instrument.profiler.profiler", "Profiler"),
    "StopAtStep": ("instrument.profiler.callbacks", "StopAtStep"),
    "StopAtEpoch": ("instrument.profiler.callbacks", "StopAtEpoch"),
    "ProfilerAction": ("instrument.profiler.schedule", "ProfilerAction"),
    "schedule": ("instrument.profiler.schedule", "schedule"),
    "span": ("instrument.marks", "span"),
    "tensorboard_trace_handler": ("instrument.profiler.profiler", "tensorboard_trace_handler"),
    "ProfilerLevel": ("instrument.profiler.options", "ProfilerLevel"),
    "ProfilerActivity": ("instrument.profiler.options", "ProfilerActivity"),
    "AicoreMetrics": ("instrument.profiler.options", "AicoreMetrics"),
    "ExportType": ("instrument.profiler.options", "ExportType"),
    "Run": ("instrument.runs.run", "Run"),
    "read": ("instrument.runs.run", "read"),
    "find_runs": ("instrument.runs.run", "find_runs"),
    "Profile": ("instrument.analyse.profile", "Profile"),
    "profile": ("instrument.analyse.profile", "profile"),
    "load_ipython_extension": ("instrument.show.notebook", "load_ipython_extension"),
}

#: Modules whose names give runs, which notebooks show by `instrument.show.notebook`.
_READING = ("instrument.runs.run", "instrument.show.notebook")

#: Module -> what it is called, and how it is installed: `pip install --no-deps` leaves them out.
_PACKAGES = {
    "mindspore": ("MindSpore", "'mindspore>=2.7,<2.11' 'numpy<2'; reading runs and profiles needs none"),
    "numpy": ("NumPy", "'numpy>=1.22'"),
    "crc32c": ("crc32c", "'crc32c>=2.3'"),
}

if not TYPE_CHECKING:  # to a type checker this would say that any name is there

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        try:
            module_name, attribute = _HOMES[name]
        except KeyError:
            from instrument.wording import did_you_mean

            hint = "" if name.startswith("_") else did_you_mean(name, __all__)
            raise AttributeError(f"module 'instrument' has no attribute {name!r}{hint}") from None
        try:
            module = import_module(module_name)
        except ModuleNotFoundError as error:
            needed = _PACKAGES.get((error.name or "").partition(".")[0])
            if needed is None:
                raise
            raise ImportError(
                f"instrument.{name} needs {needed[0]}, which is not installed: pip install {needed[1]}", name=error.name
            ) from error
        if module_name in _READING:
            from instrument.runs.points import set_renderer

            set_renderer(lambda: import_module("instrument.show.notebook").render)
        value = module if attribute is None else getattr(module, attribute)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
