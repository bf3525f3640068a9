"""Record what a MindSpore training run does, and read it back.

    from instrument import SummaryCollector
    model.train(10, dataset, callbacks=[SummaryCollector("./run")])

    from instrument import read
    read("./run").scalars("loss/auto").value

Names are resolved on first use: importing `instrument` loads neither MindSpore nor protobuf.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from instrument._version import __version__

if TYPE_CHECKING:
    from instrument.collect import ops as ops
    from instrument.collect.collector import SummaryCollector as SummaryCollector
    from instrument.collect.record import SummaryRecord as SummaryRecord
    from instrument.read.run import Run as Run
    from instrument.read.run import read as read

__all__ = ["Run", "SummaryCollector", "SummaryRecord", "__version__", "ops", "read"]

_HOMES = {
    "SummaryCollector": ("instrument.collect.collector", "SummaryCollector"),
    "SummaryRecord": ("instrument.collect.record", "SummaryRecord"),
    "ops": ("instrument.collect.ops", None),
    "Run": ("instrument.read.run", "Run"),
    "read": ("instrument.read", None),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    try:
        module_name, attribute = _HOMES[name]
    except KeyError:
        raise AttributeError(f"module 'instrument' has no attribute {name!r}") from None
    module = import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
