"""What goes down to the files: kinds, `Item` and `Event`. Workers need no more of `instrument.values` than this.

A *kind* is one of `KINDS`; a *tag* names a series; a *step* is the training step that the user counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Finished:
    """A value as files hold it, where an `Item` may also have the array from which a worker makes one."""

    __slots__ = ()


class Item(NamedTuple):
    """One thing to be written: a number, an array (turned into a histogram or a picture by a worker), or a message.

    `payload` is a float for a scalar, an array for tensor, histogram and image (there N, C, H, W), or the finished
    value of these, and the serialised message for the other kinds, a `Gap` and a text among them. `dtype` names the
    recorded type of a tensor that is an array.
    """

    kind: str
    tag: str
    payload: float | NDArray[np.generic] | bytes | Finished
    dtype: str = ""


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
    def of(cls, step: int, wall_time: float, items: Iterable[Item]) -> Event:
        """The event that holds these items, scalars among them."""
        scalars: dict[str, float] = {}
        others = []
        for item in items:
            payload: Any = item.payload
            if item.kind == "scalar":
                scalars[str.__str__(item.tag)] = float(payload)
            else:
                others.append(item)
        return cls(step, wall_time, others, scalars)
