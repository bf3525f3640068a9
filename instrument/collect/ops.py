"""Summary operators for use inside `construct`, and the one hand-over from them to the recorders.

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.summary = ops.ScalarSummary()
        def construct(self, x):
            self.summary("mean", x.mean())
            ...

Called like MindSpore's, in compiled graphs and in PyNative mode. Unlike them they record whatever they are given: the
outputs of view operators (Flatten, Reshape, Squeeze, stop_gradient), constants, parameters, 0-d tensors and bfloat16,
in branches and loops too. In a compiled graph an operator in a branch that is not taken gives its last value again:
MindSpore does not tell the two apart.

Each open recorder has an `Inbox`. In PyNative mode an operator puts a copy of its value there at the moment of the
call, if any inbox wants it. From compiled graphs values arrive when `gather` fetches them from MindSpore. The list of
inboxes is the only state of this package that belongs to the process.
"""

from __future__ import annotations

import logging
import re
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mindspore
from mindspore import ops as _ops

from instrument import framework
from instrument.collect import convert
from instrument.values import BFLOAT16, AnyItem, ArrayItem, ScalarItem

__all__ = ["HistogramSummary", "ImageSummary", "ScalarSummary", "TensorSummary"]

log = logging.getLogger("instrument")

_NAME = re.compile(r"(?P<tag>.*?)(\[#(?P<mark>\d+)(?P<flags>b?z?)\])?\[:(?P<kind>\w+)\]", re.DOTALL)
_BFLOAT16_FLAG, _ZERO_D_FLAG = "b", "z"
_ANY_RANK = 1000


class Inbox:
    """Values of summary operators that one recorder has not recorded yet: the latest of each kind and name."""

    def __init__(self) -> None:
        #: Whether values of operators are to be kept; switched off for steps that are not recorded.
        self.is_open = True
        self.wants_tensors = True
        #: What came since the last `take`.
        self.items: dict[tuple[str, str], AnyItem] = {}
        self._duplicates: set[tuple[str, str]] = set()
        _inboxes.add(self)

    def put(self, item: AnyItem) -> None:
        key = (item.kind, item.tag)
        if key in self.items and key not in self._duplicates:
            self._duplicates.add(key)
            log.warning(
                "The %s summary %r came more than once in a step (or since the last record()); the last one is kept.",
                item.kind, item.tag,
            )  # fmt: skip
        self.items[key] = item

    def take(self) -> list[AnyItem]:
        """Return what came since the last call."""
        items = list(self.items.values())
        self.items = {}
        return items

    def close(self) -> None:
        _inboxes.discard(self)


_inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
_refused: set[tuple[str, str]] = set()
#: How many `ignored` blocks are open.
_ignoring = 0


@contextmanager
def ignored() -> Iterator[None]:
    """Neither record what operators are given inside, nor warn of it: the network runs for another purpose."""
    global _ignoring
    gather()  # what ran before is recorded
    _ignoring += 1
    try:
        yield
    finally:
        try:
            framework.take_summaries()
        finally:
            _ignoring -= 1


def gather(step: int | None = None) -> None:
    """Move what compiled graphs (and MindSpore's own operators) left behind into every inbox that is open.

    With `step` also what is still on its way from an Ascend device.
    """
    summaries = framework.take_summaries(step)
    if not summaries:
        return
    # They come in the order in which graphs ran; those of one graph in the order of their marks, that of compilation.
    for name, tensor in summaries:
        match = _NAME.fullmatch(name)
        if match is not None and match["tag"]:
            _hand_over(match["kind"].lower(), match["tag"], tensor, match["flags"] or "")


def _hand_over(kind: str, tag: str, value: object, flags: str = "") -> None:
    """Give every open inbox a copy of the value. A value that cannot be recorded is logged once and stops nothing."""
    if _ignoring:
        return
    open_inboxes = [inbox for inbox in _inboxes if inbox.is_open and (kind != "tensor" or inbox.wants_tensors)]
    if not open_inboxes:
        return
    try:
        tag.encode()  # a name that is not valid Unicode has no bytes in a file; its error is a ValueError
        item = _make_item(kind, tag, value, flags)
    except (TypeError, ValueError) as error:
        _warn_once(kind, tag, "A summary operator's value is not recorded: %s", error)
        return
    for inbox in open_inboxes:
        inbox.put(item)


def _warn_once(kind: str, tag: str, text: str, *arguments: object) -> None:
    if (kind, tag) not in _refused and not _ignoring:
        _refused.add((kind, tag))
        log.warning(text, *arguments)


def _make_item(kind: str, tag: str, value: object, flags: str) -> ScalarItem | ArrayItem:
    """Make an item that shares no memory with the value.

    Raises:
        TypeError, ValueError: as `convert.to_item`.
    """
    item = convert.to_item(kind, tag, value)
    if isinstance(item, ScalarItem):
        return item
    array = item.array.reshape(()) if _ZERO_D_FLAG in flags else item.array
    is_bfloat16 = _BFLOAT16_FLAG in flags and kind == "tensor"
    return ArrayItem(kind, tag, array.copy(), BFLOAT16 if is_bfloat16 else item.dtype)


# The primitives below carry MindSpore's names, by which its compiler knows them; in PyNative mode they run as Python.


class _Eager:
    name: str

    def __call__(self, name: str, value: Any) -> None:
        tag, mark = framework.split_name(name)
        _hand_over(self.name.removesuffix("Summary").lower(), tag, value, mark)


def _primitive(base: type[Any]) -> Any:
    return type(base.__name__, (_Eager, base), {})()


@_ops.constexpr(reuse_result=False)  # type: ignore[untyped-decorator]
def _refuse(kind: str, name: str, reason: str) -> int:
    """Say once that a value is not recorded, in the middle of compilation too; the result means nothing."""
    _warn_once(kind, name, "The %s summary %r is not recorded: %s.", kind, name, reason)
    return 0


# What follows is read by the compiler: plain statements only. Each call returns the result of the primitive, as
# MindSpore drops what a function does in the backward pass (InsertGradientOf) where nothing of it is returned.


def _is_recordable(kind: str, name: str, value: Any, least_rank: int, most_rank: int) -> bool:
    """Return True if an operator can record a value; otherwise warn once, and the network goes on."""
    if not name:
        _refuse(kind, name, "its name is empty")
        return False
    rank = 0
    if isinstance(value, mindspore.Tensor):
        rank = value.ndim
    elif not isinstance(value, (int, float)):
        _refuse(kind, name, "it is neither a tensor nor a number")
        return False
    if rank < least_rank or rank > most_rank:
        _refuse(kind, name, "it has the wrong number of dimensions for this operator")
        return False
    return True


def _as_tensor(value: Any) -> Any:
    if not isinstance(value, mindspore.Tensor):
        value = mindspore.Tensor(value)
    return value


@mindspore.jit_class
class _Operator:
    """What the four operators share: from a value that is recordable to MindSpore's primitive."""

    def __init__(self, primitive: type[Any]) -> None:
        self._record = _primitive(primitive)
        self._identity = framework.Identity()
        self._stop_gradient = framework.StopGradient()
        self._cast = _ops.Cast()
        self._expand_dims = _ops.ExpandDims()

    def __call__(self, name: str, value: Any, expands: bool) -> Any:
        flags = ""
        value = _as_tensor(value)
        if value.dtype == mindspore.bfloat16:
            flags = flags + _BFLOAT16_FLAG
            value = self._cast(value, mindspore.float32)
        if expands and value.ndim == 0:
            flags = flags + _ZERO_D_FLAG
            value = self._expand_dims(value, 0)
        return self._record(framework.unique_name(name, flags), self._identity(self._stop_gradient(value)))


@mindspore.jit_class
class ScalarSummary:
    """`op(name, value)`: record a tensor with one element, or a number."""

    def __init__(self) -> None:
        self._operator = _Operator(_ops.ScalarSummary)
        self._squeeze = _ops.Squeeze()

    def __call__(self, name: str, value: Any) -> Any:
        if _is_recordable("scalar", name, value, 0, _ANY_RANK):
            value = _as_tensor(value)
            if value.size != 1:
                return _refuse("scalar", name, "it has more elements than one, or none")
            if value.ndim > 1:
                value = self._squeeze(value)
            return self._operator(name, value, False)
        return None


@mindspore.jit_class
class ImageSummary:
    """`op(name, value)`: record a picture, (H, W), (C, H, W) or (H, W, C), or a batch of them, with 1 or 3 channels."""

    def __init__(self) -> None:
        self._operator = _Operator(_ops.ImageSummary)
        self._expand_dims = _ops.ExpandDims()

    def __call__(self, name: str, value: Any) -> Any:
        if _is_recordable("image", name, value, 2, 4):
            if value.ndim == 2:
                value = self._expand_dims(value, 0)
            if value.ndim == 3:
                value = self._expand_dims(value, 0)
            return self._operator(name, value, False)
        return None


@mindspore.jit_class
class TensorSummary:
    """`op(name, value)`: record a tensor of any shape, 0-d included, or a number."""

    def __init__(self) -> None:
        self._operator = _Operator(_ops.TensorSummary)

    def __call__(self, name: str, value: Any) -> Any:
        if _is_recordable("tensor", name, value, 0, _ANY_RANK):
            return self._operator(name, value, True)
        return None


@mindspore.jit_class
class HistogramSummary:
    """`op(name, value)`: record the histogram of a tensor of any shape, or of a number."""

    def __init__(self) -> None:
        self._operator = _Operator(_ops.HistogramSummary)

    def __call__(self, name: str, value: Any) -> Any:
        if _is_recordable("histogram", name, value, 0, _ANY_RANK):
            return self._operator(name, value, True)
        return None
