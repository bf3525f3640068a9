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
from typing import Any

import mindspore
from mindspore import ops as _ops

from instrument import framework
from instrument.collect import convert
from instrument.values import Item

__all__ = ["HistogramSummary", "ImageSummary", "ScalarSummary", "TensorSummary"]

log = logging.getLogger("instrument")

_NAME = re.compile(r"(?P<tag>.*?)(\[#(?P<mark>\d+)(?P<flags>b?z?)\])?\[:(?P<kind>\w+)\]", re.DOTALL)
_BFLOAT16_FLAG, _ZERO_D_FLAG = "b", "z"


class Inbox:
    """Values of summary operators that one recorder has not recorded yet: the latest of each kind and name."""

    def __init__(self) -> None:
        #: Whether values of operators are to be kept; switched off for steps that are not recorded.
        self.is_open = True
        self.wants_tensors = True
        self._items: dict[tuple[str, str], Item] = {}
        self._duplicates: set[tuple[str, str]] = set()
        _inboxes.add(self)

    def put(self, item: Item) -> None:
        key = (item.kind, item.tag)
        if key in self._items and key not in self._duplicates:
            self._duplicates.add(key)
            log.warning(
                "The %s summary %r came more than once in a step (or since the last record()); the last one is kept.",
                item.kind, item.tag,
            )  # fmt: skip
        self._items[key] = item

    def take(self) -> list[Item]:
        """What came since the last call."""
        items = list(self._items.values())
        self._items = {}
        return items

    def close(self) -> None:
        _inboxes.discard(self)


_inboxes: weakref.WeakSet[Inbox] = weakref.WeakSet()
_refused: set[tuple[str, str]] = set()


def gather(step: int | None = None) -> None:
    """Move what compiled graphs (and MindSpore's own operators) left behind into every inbox that is open.

    With `step` also what is still on its way from an Ascend device.
    """
    framework.wait_for_summaries(step)
    summaries = framework.take_summaries()
    if not summaries:
        return
    # Marks count up in the order of compilation, so the last of two equal names comes last.
    for name, tensor in sorted(summaries, key=_mark):
        match = _NAME.fullmatch(name)
        if match is not None and match["tag"]:
            _hand_over(match["kind"].lower(), match["tag"], tensor, match["flags"] or "")


def _mark(summary: tuple[str, Any]) -> int:
    match = _NAME.fullmatch(summary[0])
    return int(match["mark"]) if match is not None and match["mark"] else -1


def _hand_over(kind: str, tag: str, value: Any, flags: str = "") -> None:
    """Give every open inbox a copy of the value. What cannot be recorded is said once and stops nothing."""
    open_inboxes = [inbox for inbox in _inboxes if inbox.is_open and (kind != "tensor" or inbox.wants_tensors)]
    if not open_inboxes:
        return
    try:
        tag.encode()  # a name that is not valid Unicode has no bytes in a file; its error is a ValueError
        item = make_item(kind, tag, value, flags)
    except (TypeError, ValueError) as error:
        if (kind, tag) not in _refused:
            _refused.add((kind, tag))
            log.warning("A summary operator's value is not recorded: %s", error)
        return
    for inbox in open_inboxes:
        inbox.put(item)


def make_item(kind: str, tag: str, value: Any, flags: str = "", copy: bool = True) -> Item:
    """An item out of a tensor, array or number; with `copy` it shares no memory with it.

    Raises:
        TypeError, ValueError: as the functions of `convert`.
    """
    if kind == "scalar":
        return Item(kind, tag, convert.to_scalar(value, tag))
    if kind == "image":
        array, dtype = convert.to_image(value, tag), ""
    else:
        array, dtype = convert.to_array(value, tag)
    if _ZERO_D_FLAG in flags:
        array = array.reshape(())
    if _BFLOAT16_FLAG in flags:
        dtype = "bfloat16"
    return Item(kind, tag, array.copy() if copy else array, dtype)


# The primitives below carry MindSpore's names, by which its compiler knows them; in PyNative mode they run as Python.


class _Eager:
    name: str

    def __call__(self, name: str, value: Any) -> None:
        tag, mark = framework.split_name(name)
        _hand_over(self.name.removesuffix("Summary").lower(), tag, value, mark)


def _primitive(base: type[Any]) -> Any:
    return type(base.__name__, (_Eager, base), {})()


@mindspore.jit_class
class ScalarSummary:
    """`op(name, value)`: record a tensor with one element."""

    def __init__(self) -> None:
        self._record = _primitive(_ops.ScalarSummary)
        self._identity = framework.Identity()
        self._stop_gradient = framework.StopGradient()
        self._cast = _ops.Cast()

    def __call__(self, name, value):  # type: ignore[no-untyped-def]  # the compiler reads this source
        if value.dtype == mindspore.bfloat16:
            value = self._cast(value, mindspore.float32)
        self._record(framework.unique_name(name, ""), self._identity(self._stop_gradient(value)))


@mindspore.jit_class
class ImageSummary:
    """`op(name, value)`: record a batch of pictures, (N, C, H, W) or (N, H, W, C) with 1 or 3 channels."""

    def __init__(self) -> None:
        self._record = _primitive(_ops.ImageSummary)
        self._identity = framework.Identity()
        self._stop_gradient = framework.StopGradient()
        self._cast = _ops.Cast()

    def __call__(self, name, value):  # type: ignore[no-untyped-def]
        if value.dtype == mindspore.bfloat16:
            value = self._cast(value, mindspore.float32)
        self._record(framework.unique_name(name, ""), self._identity(self._stop_gradient(value)))


@mindspore.jit_class
class TensorSummary:
    """`op(name, value)`: record a tensor of any shape, 0-d included."""

    def __init__(self) -> None:
        self._record = _primitive(_ops.TensorSummary)
        self._identity = framework.Identity()
        self._stop_gradient = framework.StopGradient()
        self._cast = _ops.Cast()
        self._expand_dims = _ops.ExpandDims()

    def __call__(self, name, value):  # type: ignore[no-untyped-def]
        flags = ""
        if value.dtype == mindspore.bfloat16:
            flags = flags + _BFLOAT16_FLAG
            value = self._cast(value, mindspore.float32)
        if value.ndim == 0:
            flags = flags + _ZERO_D_FLAG
            value = self._expand_dims(value, 0)
        self._record(framework.unique_name(name, flags), self._identity(self._stop_gradient(value)))


@mindspore.jit_class
class HistogramSummary:
    """`op(name, value)`: record the histogram of a tensor of any shape."""

    def __init__(self) -> None:
        self._record = _primitive(_ops.HistogramSummary)
        self._identity = framework.Identity()
        self._stop_gradient = framework.StopGradient()
        self._cast = _ops.Cast()
        self._expand_dims = _ops.ExpandDims()

    def __call__(self, name, value):  # type: ignore[no-untyped-def]
        if value.dtype == mindspore.bfloat16:
            value = self._cast(value, mindspore.float32)
        if value.ndim == 0:
            value = self._expand_dims(value, 0)
        self._record(framework.unique_name(name, ""), self._identity(self._stop_gradient(value)))
