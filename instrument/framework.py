"""Every name of MindSpore's that is not part of its public interface, each behind a function that says what it gives.

The rest of the code reads as if MindSpore were well-behaved. `probe()` looks each name up in the installed version and
says which are missing; a missing one raises `FrameworkError` where it is needed. Written for MindSpore 2.7 to 2.10.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import mindspore
import numpy as np
from mindspore import context, nn, ops
from mindspore.communication.management import get_group_size, get_rank

from instrument._version import SUPPORTED_MINDSPORE
from instrument.errors import FrameworkError

if TYPE_CHECKING:
    from mindspore import train
    from mindspore.dataset.engine.iterators import Iterator as DataIterator

log = logging.getLogger("instrument")

Value = TypeVar("Value")

_SUMMARY_RECORD = "mindspore.train.summary.summary_record"
_DEBUG_OPS = "mindspore.ops.operations.debug_ops"
#: Variables in which launchers leave the number of ranks; MindSpore copies mpirun's to the first.
_RANK_COUNTS = ("RANK_SIZE", "MS_WORKER_NUM")
#: Name -> the places where it lives in one version or another.
_PRIVATE = {
    "_get_summary_tensor_data": (_SUMMARY_RECORD,),
    "SUMMARY_TENSOR_CACHE": (_DEBUG_OPS,),
    "_cell_graph_executor": ("mindspore.graph.api", "mindspore.common.api"),
    "_pynative_executor": ("mindspore.graph.api", "mindspore.common.api"),
    "Profiler": ("mindspore._c_expression",),
    "GlobalContext": ("mindspore._c_dataengine",),
    "ITERATORS_LIST": ("mindspore.dataset.engine.iterators",),
}


#: What an operator or a network that fails raises, also while it is compiled: the errors to which MindSpore maps those
#: of its C++ code, and those of its Python code.
OPERATOR_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, SyntaxError, TypeError,
    ValueError,
)  # fmt: skip


# ---------------------------------------------------------------- NumPy


#: The last release whose compiled part was built for NumPy 1.
_LAST_FOR_NUMPY_1 = (2, 10)


def _prepare_numpy() -> None:
    """Take MindSpore's first error out of the way where NumPy 2 is installed, and warn of the others.

    When MindSpore parses the arguments of an operation for the first time in a process, it asks NumPy for the table of
    functions of NumPy 1. NumPy 2 raises an ImportError, which MindSpore logs and leaves pending: that operation ends
    with a SystemError. Later operations do without the table. Arguments that are refused get as far as the parser and
    no further, so that neither a device nor an operation is started here.
    """
    major = int(np.__version__.partition(".")[0])
    if major < 2 or tuple(int(part) for part in version().split(".")[:2] if part.isdigit()) > _LAST_FOR_NUMPY_1:
        return
    refused = contextlib.suppress(ImportError, SystemError, TypeError, ValueError, RuntimeError)
    with contextlib.redirect_stderr(io.StringIO()), refused:  # NumPy writes a traceback; the warning below sums it up
        mindspore.Tensor(0).reshape("no shape")
    log.warning(
        "MindSpore %s was built for NumPy 1, and NumPy %s is installed. What is recorded is right, but operations of "
        "MindSpore with NumPy numbers fail (tensor + np.float32(1)), and so do data sets whose rows hold plain numbers "
        "(NumpySlicesDataset of labels). Install NumPy 1: pip install 'numpy<2'", version(), np.__version__,
    )  # fmt: skip


@functools.cache
def _home(name: str) -> ModuleType:
    """Return the module that holds a private name."""
    for module_name in _PRIVATE[name]:
        try:
            module = import_module(module_name)
        except ImportError:
            continue
        if hasattr(module, name):
            return module
    raise FrameworkError(
        f"MindSpore {mindspore.__version__} has no {name} in {' or '.join(_PRIVATE[name])}, which instrument "
        f"relies on. Supported are MindSpore {' to '.join('.'.join(map(str, one)) for one in SUPPORTED_MINDSPORE)}."
    )


def probe() -> list[str]:
    """Return the private names that the installed MindSpore lacks; none of a supported version."""
    missing = []
    for name in _PRIVATE:
        try:
            _home(name)
        except FrameworkError:
            missing.append(name)
    return missing


# ---------------------------------------------------------------- summary operators


def take_summaries(step: int | None = None) -> list[tuple[str, mindspore.Tensor]]:
    """Take what MindSpore holds of its summary operators: (name, tensor), with names like `loss[:Scalar]`.

    In PyNative mode a compiled function that is still running is waited for, and on Ascend, where values arrive later
    than the step ends, those of a `step`.
    """
    if _names_made > _names_used:
        _home("_pynative_executor")._pynative_executor.sync()
    if step is not None and _is_on_ascend():
        _wait_for_ascend(step)
    # Compiled graphs leave their values in a dictionary, operators that ran one by one in a list of
    # (operator, name, tensor).
    summaries, eager = _summary_caches()
    taken = []
    if getattr(summaries, "SUMMARY_TENSOR_CACHE", True):  # mostly it is empty, and a look takes less than the call
        taken += summaries._get_summary_tensor_data().items()
    if eager.SUMMARY_TENSOR_CACHE:
        values = eager.SUMMARY_TENSOR_CACHE
        vars(eager)["SUMMARY_TENSOR_CACHE"] = []
        taken += [(f"{name}[:{operator.removesuffix('Summary')}]", tensor) for operator, name, tensor in values]
    return taken


@functools.cache
def _summary_caches() -> tuple[ModuleType, ModuleType]:
    return _home("_get_summary_tensor_data"), _home("SUMMARY_TENSOR_CACHE")


def _wait_for_ascend(step: int) -> None:
    wait = getattr(import_module(_SUMMARY_RECORD).SummaryRecord, "_sync_summary_data", None)
    if wait is not None:
        wait(SimpleNamespace(_op_finished_init=True), step)


@functools.cache
def _is_on_ascend() -> bool:
    """Return True on Ascend. Call it when a step has run: the device does not change after that."""
    return bool(context.get_context("device_target") == "Ascend")


class Identity(ops.Identity):  # type: ignore[misc]
    """A copy in a compiled graph; nothing where operators run one by one.

    Without it MindSpore loses the output of view operators (Flatten, Reshape, Squeeze, stop_gradient) that go into a
    summary operator.
    """

    def __call__(self, value: Value) -> Value:
        return value


class StopGradient(ops.StopGradient):  # type: ignore[misc]
    """Outside of the gradient in a compiled graph; nothing where operators run one by one.

    Without it MindSpore loses the copy of a parameter, in the graph of a training that has a branch or a loop.
    """

    def __call__(self, value: Value) -> Value:
        return value


#: How many names were made, and how many of them by operators that ran one by one; the others stand in graphs.
_names_made = _names_used = 0


@ops.constexpr(reuse_result=False)  # type: ignore[untyped-decorator]
def unique_name(name: str, flags: str) -> str:
    """Return the name with a mark of its own, made while a graph is compiled.

    MindSpore keeps one value a name and says nothing of the others; with marks both of two equal names arrive.
    """
    global _names_made
    _names_made += 1
    return f"{name}[#{_names_made:09d}{flags}]"  # MindSpore hands out a graph's values in the order of their names


def split_name(marked: str) -> tuple[str, str]:
    """Split what `unique_name` gave an operator outside of a graph into the name and, before `]`, the flags."""
    global _names_used
    _names_used += 1
    name, _, mark = marked.rpartition("[#")
    return name, mark


# ---------------------------------------------------------------- graphs, devices


def model_of(network: nn.Cell) -> bytes | None:
    """Return the network's graph as a serialised `ModelProto`; None until it is compiled, and in PyNative mode."""
    get = getattr(network, "get_func_graph_proto", None)
    if get is None or context.get_context("mode") != context.GRAPH_MODE:
        return None
    model = get()
    return model if isinstance(model, bytes) and model else None


def optimized_model_of(network: nn.Cell | None) -> bytes | None:
    """Return the same after the compiler's passes, the graph that `SummaryRecord(network=...)` asks for."""
    if network is None or context.get_context("mode") != context.GRAPH_MODE:
        return None
    model = _home("_cell_graph_executor")._cell_graph_executor.get_optimize_graph_proto(network)
    return model if isinstance(model, bytes) and model else None


def rank() -> int | None:
    """Return the rank in a training of several processes; None in one of a single process.

    Before communication is set up, what the launcher (msrun, mpirun, a rank table) left in the environment counts.
    """
    try:
        if get_group_size() > 1:
            return int(get_rank())
    except (RuntimeError, ValueError, TypeError):
        pass  # no communication was set up
    number = os.environ.get("RANK_ID", "")
    has_others = "RANK_TABLE_FILE" in os.environ or any(os.environ.get(size, "1") != "1" for size in _RANK_COUNTS)
    return int(number) if has_others and number.isdecimal() else None


def device_number() -> int:
    """Return the rank in a distributed run, else the device's number."""
    number = rank()
    return device_id() if number is None else number


def device_id() -> int:
    """Return the number of the device that this process uses."""
    return int(context.get_context("device_id"))


def device_target() -> str:
    """Return "CPU", "Ascend" or "GPU"."""
    return str(context.get_context("device_target"))


def mode() -> str:
    """Return "graph" or "pynative"."""
    return "graph" if context.get_context("mode") == context.GRAPH_MODE else "pynative"


def evaluation_of(model: train.Model) -> tuple[nn.Cell, tuple[int, int] | None] | None:
    """Return the evaluation network that a `Model` was given, and which of its outputs are prediction and label.

    The latter is None where a metric takes all outputs. Return None where the model has no such network, or made one of
    its network and loss.
    """
    network = getattr(model, "eval_network", None)
    if network is None or type(network) is nn.WithEvalCell:
        return None
    indexes = getattr(model, "_eval_indexes", None)
    return network, None if indexes is None else (int(indexes[1]), int(indexes[2]))


def version() -> str:
    """Return MindSpore's version, such as "2.10.0"."""
    return str(mindspore.__version__)


class DeviceMemory(NamedTuple):
    """What tensors occupy of the device's memory, and what MindSpore's pool holds of it."""

    allocated_bytes: int
    reserved_bytes: int


def device_memory() -> DeviceMemory | None:
    """Return the memory of an accelerator; None on the CPU, of which MindSpore tells nothing.

    Call `wait_for_operators` first: MindSpore does so otherwise, and the errors of a training are then raised here.
    """
    if device_target() == "CPU":
        return None
    runtime = import_module("mindspore.runtime")
    return DeviceMemory(int(runtime.memory_allocated()), int(runtime.memory_reserved()))


# ---------------------------------------------------------------- profiling


def wait_for_operators() -> None:
    """Return when all operators that were called have run; in PyNative mode they run behind Python's back."""
    _home("_pynative_executor")._pynative_executor.sync()


class OperatorProfiler(Protocol):
    """MindSpore's profiler of operators on the CPU, which takes a new directory for each window."""

    def init(self, directory: str) -> None: ...
    def step_profiling_enable(self, is_enabled: bool) -> None: ...
    def enable_op_time(self) -> None: ...
    def enable_profile_memory(self) -> None: ...
    def stop(self) -> None: ...


def cpu_profiler() -> OperatorProfiler:
    """Return the process's profiler of operators on the CPU.

    Its `init(directory)`, `enable_op_time()` and `enable_profile_memory()` begin a window, `stop()` writes its files.
    """
    profiler: OperatorProfiler | None = _home("Profiler").Profiler.get_instance("CPU")
    if profiler is None:
        raise FrameworkError(f"MindSpore {mindspore.__version__} was built without its profiler of the CPU.")
    return profiler


class PipelineProfiler(Protocol):
    """MindSpore's profiler of one data pipeline."""

    def init(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def save(self, directory: str) -> None: ...


def data_profiler() -> PipelineProfiler:
    """Return the process's profiler of one data pipeline.

    It takes the first pipeline whose iterator is built after `init`, and must not be started when that is gone: it
    would follow a dangling pointer.
    """
    manager: PipelineProfiler = _home("GlobalContext").GlobalContext.profiling_manager()
    return manager


def watch_iterators(before: Callable[[], bool], after: Callable[[DataIterator], None]) -> None:
    """Call `before()` ahead of the making of each iterator over a dataset and, where it answers True, `after(it)`."""
    iterator = _home("ITERATORS_LIST").Iterator
    make = iterator.__init__

    @functools.wraps(make)
    def watched(self: DataIterator, *args: object, **kwargs: object) -> None:
        is_wanted = before()
        make(self, *args, **kwargs)
        if is_wanted:
            after(self)

    iterator.__init__ = watched


def is_alive(iterator: DataIterator) -> bool:
    """Return True if an iterator still has its pipeline."""
    return getattr(iterator, "_runtime_context", None) is not None


_prepare_numpy()
