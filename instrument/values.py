"""What travels between the writing and the reading half.

A *kind* is one of `KINDS`; a *tag* names a series; a *step* is the training step that the user counts.
On the way down an `Item` carries either a finished value or the raw array from which a worker makes one;
on the way up a `Record` carries the value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Kinds that share an event as values of a summary, in the order in which they are listed.
SUMMARY_KINDS = ("scalar", "image", "tensor", "histogram", "landscape")
#: Kinds of the lineage file.
LINEAGE_KINDS = ("train_lineage", "eval_lineage", "dataset_graph", "custom_lineage_data")
#: Texts are only in files that others wrote.
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


@dataclass(frozen=True)
class Scalar:
    """One number. Files of MindSpore's dialect hold it as float32, and exactly beside it where float32 cannot."""

    value: float


@dataclass(frozen=True, eq=False)
class Tensor:
    """An array of any numeric dtype.

    `dtype` is the recorded type by name. For `"bfloat16"` the array is float32 (every value exact); otherwise
    it is the array's own.
    """

    array: NDArray[np.generic]
    dtype: str


@dataclass(frozen=True)
class Image:
    """An encoded picture: `data` are the file's bytes (PNG as we write it), sizes in pixels.

    `instrument.codec.image.pixels` decodes it to an array.

    `mapping` says in words how recorded numbers became grey levels; empty where the file does not say.
    """

    data: bytes = field(repr=False)
    height: int
    width: int
    channels: int
    mapping: str = ""


@dataclass(frozen=True, eq=False)
class Histogram:
    """Counts of finite values in ascending buckets, and what was not finite.

    `left`, `width` (float64) and `counts` (int64) have one entry a bucket; bucket i covers
    `left[i] <= v < left[i] + width[i]`, the last one its right edge too. `count` is the size of the recorded array,
    NaN and infinities included; `min`, `max` and `sum` are those of the finite values (NaN where there is none).
    """

    left: NDArray[np.float64] = field(repr=False)
    width: NDArray[np.float64] = field(repr=False)
    counts: NDArray[np.int64] = field(repr=False)
    count: int
    min: float
    max: float
    sum: float
    nan_count: int = 0
    positive_infinity_count: int = 0
    negative_infinity_count: int = 0


@dataclass(frozen=True, eq=False)
class Text:
    """Texts, as TensorBoard has them: `array` is an array of str of any shape, mostly of one element."""

    array: NDArray[np.object_]

    @property
    def text(self) -> str:
        """All of it, one element a line."""
        return "\n".join(map(str, self.array.reshape(-1).tolist()))


@dataclass(frozen=True)
class Graph:
    """A computational graph: `data` is a serialised `mindspore.irpb.GraphProto`.

    `instrument.codec.graph` lists its `nodes` and `parameters`.
    """

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Lineage:
    """Where a run came from: `data` is the serialised message of the lineage kind `what`."""

    what: str
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Landscape:
    """A loss landscape: `data` is a serialised `mindspore.irpb.LossLandscape`."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, eq=False)
class LossSurface:
    """A loss landscape as arrays, float64 where nothing else is said; `instrument.codec.landscape` makes and reads it.

    The loss `z` (rows, columns) stands at `y` (rows,) and `x` (columns,), which ascend; NaN and infinities are values
    that the network gave. A line has one row. `metrics` are further values on the same grid, (rows, columns) each.

    Of the checkpoints that span the plane, in their order: `numbers` (k,) int64, the steps or epochs; `path` (k, 2),
    the x and y that they are projected to; `path_loss` (k,), the loss there; `true_loss` (k,), that of the checkpoint
    itself; `unexplained` (k,), the length of what lies off the plane over that of the whole difference to the last
    one. The last two are NaN where the file does not say. k is 0 for planes without a path.

    `explained` are the shares of the squared lengths along the first principal axes, empty where nobody computed them.
    `convergence` is (x, y, loss) of the last checkpoint, empty where there is none. `metadata` says the rest, under
    names: always `decomposition`, `unit` and `step_per_epoch`, and of ours what `instrument.landscape.surface` lists.
    """

    tag: str
    x: NDArray[np.float64] = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    z: NDArray[np.float64] = field(repr=False)
    numbers: NDArray[np.int64]
    path: NDArray[np.float64] = field(repr=False)
    path_loss: NDArray[np.float64] = field(repr=False)
    true_loss: NDArray[np.float64] = field(repr=False)
    unexplained: NDArray[np.float64] = field(repr=False)
    explained: NDArray[np.float64]
    convergence: NDArray[np.float64]
    metrics: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Gap:
    """A place in a file where `events` events are missing, the first of `first_step`, the last of `last_step`."""

    events: int
    first_step: int
    last_step: int
    reason: str


@dataclass(frozen=True)
class Trace:
    """A piece of one raw file of a profile: `data` stands at `offset` of the `total_bytes` that the file has.

    `window` counts the windows of one trace file from 0, `kind` says whose file it is ("cpu", "ascend", "gpu",
    "minddata", "instrument"), `device` is the device or rank number, `name` the path inside the window's directory,
    with "/" between its parts. An empty file is one piece without data.
    """

    window: int
    kind: str
    device: int
    name: str
    offset: int
    total_bytes: int
    data: bytes | memoryview = field(repr=False)


Value = Scalar | Tensor | Image | Histogram | Text | Graph | Lineage | Landscape | Gap | Trace


@dataclass(frozen=True)
class Record:
    """One value of one series. `wall_time` is in seconds since the epoch (UTC)."""

    step: int
    wall_time: float
    kind: str
    tag: str
    value: Value


class Item(NamedTuple):
    """One thing to be written: a number, an array (turned into a histogram or a picture by a worker), or a message.

    `payload` is a float for a scalar, an array for tensor, histogram and image (there N, C, H, W), or the finished
    value of these, and the serialised message for the other kinds, a `Gap` among them. `dtype` names the recorded type
    of a tensor that is an array.
    """

    kind: str
    tag: str
    payload: float | NDArray[np.generic] | bytes | Tensor | Image | Histogram | Text
    dtype: str = ""


class Event(NamedTuple):
    """What one `record(step)` hands over: scalars by tag, and the items of all other kinds.

    `aliases` are the names that TensorBoard's dialect has for some kinds and tags: it shows one kind a tag. `ahead` is
    the number of the ticket of a tensor that stands in the file already, 0 for none.
    """

    step: int
    wall_time: float
    items: Sequence[Item] = ()
    scalars: Mapping[str, float] = _NO_SCALARS
    aliases: dict[tuple[str, str], str] = _NO_ALIASES
    ahead: int = 0

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
