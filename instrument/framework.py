"""Every name of MindSpore's that is not part of its public interface, each behind a function that says what it gives.

The rest of the code reads as if MindSpore were well-behaved. `probe()` looks each name up in the installed version and
says which are missing; a missing one raises `FrameworkError` where it is needed. Written for MindSpore 2.7 to 2.10.
"""

from __future__ import annotations

import functools
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import mindspore
from mindspore import context, ops
from mindspore.communication.management import get_group_size, get_rank

from instrument.errors import FrameworkError

_SUMMARY_RECORD = "mindspore.train.summary.summary_record"
_DEBUG_OPS = "mindspore.ops.operations.debug_ops"
#: Name -> the places where it lives in one version or another.
_PRIVATE = {
    "_get_summary_tensor_data": (_SUMMARY_RECORD,),
    "SUMMARY_TENSOR_CACHE": (_DEBUG_OPS,),
    "_cell_graph_executor": ("mindspore.graph.api", "mindspore.common.api"),
    "_pynative_executor": ("mindspore.graph.api", "mindspore.common.api"),
}


@functools.cache
def _home(name: str) -> Any:
    """The module that holds a private name."""
    for module_name in _PRIVATE[name]:
        try:
            module = import_module(module_name)
        except ImportError:
            continue
        if hasattr(module, name):
            return module
    raise FrameworkError(
        f"MindSpore {mindspore.__version__} has no {name} in {' or '.join(_PRIVATE[name])}, which instrument "
        "relies on. Supported are MindSpore 2.7 to 2.10."
    )


def probe() -> list[str]:
    """The private names that the installed MindSpore lacks; empty for a supported version."""
    missing = []
    for name in _PRIVATE:
        try:
            _home(name)
        except FrameworkError:
            missing.append(name)
    return missing


# ---------------------------------------------------------------- summary operators


def take_summaries() -> list[tuple[str, Any]]:
    """What MindSpore holds of its summary operators, as (name, tensor) with names like `loss[:Scalar]`; it is emptied.

    Compiled graphs leave their values in a dictionary, operators that ran one by one in a list of
    (operator, name, tensor).
    """
    found = list(_home("_get_summary_tensor_data")._get_summary_tensor_data().items())
    debug_ops = _home("SUMMARY_TENSOR_CACHE")
    if debug_ops.SUMMARY_TENSOR_CACHE:
        eager, debug_ops.SUMMARY_TENSOR_CACHE = debug_ops.SUMMARY_TENSOR_CACHE, []
        found += [(f"{name}[:{operator.removesuffix('Summary')}]", tensor) for operator, name, tensor in eager]
    return found


def wait_for_summaries(step: int | None) -> None:
    """Wait until the values of summary operators are there.

    In PyNative mode a compiled function may still be running, and on Ascend they arrive later than the step ends; there
    only those of a `step` are waited for.
    """
    if _names_made > _names_used:
        _home("_pynative_executor")._pynative_executor.sync()
    if step is None or not _is_on_ascend():
        return
    wait = getattr(import_module(_SUMMARY_RECORD).SummaryRecord, "_sync_summary_data", None)
    if wait is not None:
        wait(SimpleNamespace(_op_finished_init=True), step)


@functools.cache
def _is_on_ascend() -> bool:
    """Asked for the first time when a step has run; the device does not change after that."""
    return bool(context.get_context("device_target") == "Ascend")


class Identity(ops.Identity):  # type: ignore[misc]
    """A copy in a compiled graph; nothing where operators run one by one.

    Without it MindSpore loses the output of view operators (Flatten, Reshape, Squeeze, stop_gradient) that go into a
    summary operator.
    """

    def __call__(self, value: Any) -> Any:
        return value


class StopGradient(ops.StopGradient):  # type: ignore[misc]
    """Outside of the gradient in a compiled graph; nothing where operators run one by one.

    Without it MindSpore loses the copy of a parameter, in the graph of a training that has a branch or a loop.
    """

    def __call__(self, value: Any) -> Any:
        return value


#: How many names were made, and how many of them by operators that ran one by one; the others stand in graphs.
_names_made = _names_used = 0


@ops.constexpr(reuse_result=False)  # type: ignore[untyped-decorator]
def unique_name(name: str, flags: str) -> str:
    """The name with a mark of its own, made while a graph is compiled.

    MindSpore keeps one value a name and says nothing of the others; with marks both of two equal names arrive.
    """
    global _names_made
    _names_made += 1
    return f"{name}[#{_names_made:09d}{flags}]"  # MindSpore hands out a graph's values in the order of their names


def split_name(marked: str) -> tuple[str, str]:
    """What an operator that runs outside of a graph was given by `unique_name`: the name and, before `]`, the flags."""
    global _names_used
    _names_used += 1
    name, _, mark = marked.rpartition("[#")
    return name, mark


# ---------------------------------------------------------------- graphs, devices


def model_of(network: Any) -> bytes | None:
    """The network's graph as a serialised `ModelProto`; None while it is not compiled, as always in PyNative mode."""
    get = getattr(network, "get_func_graph_proto", None)
    if get is None or context.get_context("mode") != context.GRAPH_MODE:
        return None
    model = get()
    return model if isinstance(model, bytes) and model else None


def optimized_model_of(network: Any) -> bytes | None:
    """The same after the compiler's passes, the graph that `SummaryRecord(network=...)` asks for."""
    if context.get_context("mode") != context.GRAPH_MODE:
        return None
    model = _home("_cell_graph_executor")._cell_graph_executor.get_optimize_graph_proto(network)
    return model if isinstance(model, bytes) and model else None


def device_number() -> int:
    """The rank in a distributed run, else the device's number."""
    try:
        if get_group_size() > 1:
            return int(get_rank())
    except (RuntimeError, ValueError, TypeError):
        pass  # no communication was set up
    return int(context.get_context("device_id"))
