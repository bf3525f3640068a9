"""Kinds, items and events: what the recording half hands to the writers.

A *kind* is one of `KINDS`; a *tag* names a series; a *step* is the training step that the user counts.

The problem: a value changes its form on its way. It is added as a number, an array or a message, may be copied into the
ring before its event is known, comes out of the ring as a view of shared memory, and becomes a histogram or a picture
in a worker. Each stage takes some of these forms only.

The strategy: one class of items a form, each with exactly what that form has. `collect` makes `ScalarItem`, `ArrayItem`
and `MessageItem`; the ring takes the last two, and `StagedItem` for an array that lies in it; the worker's side gives
them back, or an `EncodedItem` that needs no NumPy; `codec` turns an array into a `ValueItem`. Exports start from
`ValueItem`s. Scalars, the most frequent values, are stored as a dictionary of numbers by tag, not as items.

Rejected: one class a kind. Tensors, histograms and pictures take the same way to the worker, and texts, graphs and
lineage another one; only the encoder at its end has to know them apart. Rejected as well: frozen dataclasses, as
the values themselves are. The training thread makes an item for each array, and a named tuple takes half the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Kinds that share an event as values of a summary, in the order in which they are listed.
SUMMARY_KINDS = ("scalar", "image", "tensor", "histogram", "landscape")
#: Kinds of the lineage file.
LINEAGE_KINDS = ("train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data")
#: MindSpore has no texts; its readers skip them.
KINDS = (*SUMMARY_KINDS, "text", "graph", *LINEAGE_KINDS)
#: Tags that begin so come by the clock, not by steps: a step may have any number of points.
SAMPLED = "system/"
#: Pieces of a device trace, in files of their own.
TRACE_KIND = "trace"
#: How a run ended, for TensorBoard's page of hyper-parameters: an item with no place in MindSpore's dialect.
SESSION_END = "session_end"
#: The dtype that NumPy lacks: its values travel as float32, which holds each of them exactly.
BFLOAT16 = "bfloat16"
_NO_SCALARS: Mapping[str, float] = {}
_NO_ALIASES: dict[tuple[str, str], str] = {}


class SummaryValue:
    """A tensor, picture, histogram or text as files hold it; `instrument.values` has the classes."""

    __slots__ = ()


class ScalarItem(NamedTuple):
    """A number. An event keeps those of all its items by tag."""

    tag: str
    value: float

    @property
    def kind(self) -> str:
        return "scalar"


class ArrayItem(NamedTuple):
    """Numbers of which a worker makes a tensor, a histogram or, of (N, C, H, W), a picture.

    `dtype` names the recorded type of a tensor: bfloat16 comes as float32.
    """

    kind: str
    tag: str
    array: NDArray[np.generic]
    dtype: str = ""


class StagedArray:
    """An array that lies in `place` of a ring already, at `offset` of the body of the next record."""

    __slots__ = ("dtype", "nbytes", "offset", "place", "shape")

    def __init__(self, array: NDArray[np.generic], place: memoryview, offset: int) -> None:
        self.dtype, self.shape, self.nbytes = array.dtype, array.shape, len(place)
        self.place, self.offset = place, offset

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def array(self) -> NDArray[np.generic]:
        """Return the array where it lies."""
        import numpy as np

        return np.ndarray(self.shape, self.dtype, self.place)


class StagedItem(NamedTuple):
    """An `ArrayItem` whose array lies in the ring, until the next event is written."""

    kind: str
    tag: str
    array: StagedArray
    dtype: str = ""

    def in_place(self) -> ArrayItem:
        """Return the item with its array where that lies."""
        return ArrayItem(self.kind, self.tag, self.array.array(), self.dtype)

    def copy(self) -> ArrayItem:
        """Return the item with a copy of its array."""
        return ArrayItem(self.kind, self.tag, self.array.array().copy(), self.dtype)


class ValueItem(NamedTuple):
    """A finished value."""

    kind: str
    tag: str
    value: SummaryValue


class MessageItem(NamedTuple):
    """A serialised message: a text, a graph, lineage, a landscape, a gap, or a piece of a trace."""

    kind: str
    tag: str
    data: bytes


class EncodedItem(NamedTuple):
    """A value as MindSpore's dialect encodes it, in pieces that are not copied."""

    kind: str
    tag: str
    pieces: list[bytes | memoryview]


#: What an event holds beside its scalars, and what scalars are handed over with.
Item = ArrayItem | StagedItem | ValueItem | MessageItem | EncodedItem
AnyItem = ScalarItem | Item


class Event(NamedTuple):
    """What one `record(step)` hands over: scalars by tag, and the items of all other kinds.

    `aliases` are the names that TensorBoard's dialect has for some kinds and tags: it shows one kind a tag.
    """

    step: int
    wall_time: float
    items: Sequence[Item] = ()
    scalars: Mapping[str, float] = _NO_SCALARS
    aliases: dict[tuple[str, str], str] = _NO_ALIASES

    @classmethod
    def of(cls, step: int, wall_time: float, items: Iterable[AnyItem]) -> Event:
        """Return the event that holds these items, scalars among them."""
        scalars: dict[str, float] = {}
        others: list[Item] = []
        for item in items:
            if isinstance(item, ScalarItem):
                scalars[str.__str__(item.tag)] = float(item.value)
            else:
                others.append(item)
        return cls(step, wall_time, others, scalars)
