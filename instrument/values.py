"""What travels between the writing and the reading half.

On the way down items carry it (`instrument.events`, whose names are here, too); on the way up a `Record` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from instrument.events import BFLOAT16 as BFLOAT16
from instrument.events import KINDS as KINDS
from instrument.events import LINEAGE_KINDS as LINEAGE_KINDS
from instrument.events import SAMPLED as SAMPLED
from instrument.events import SESSION_END as SESSION_END
from instrument.events import SUMMARY_KINDS as SUMMARY_KINDS
from instrument.events import TRACE_KIND as TRACE_KIND
from instrument.events import AnyItem as AnyItem
from instrument.events import ArrayItem as ArrayItem
from instrument.events import Event as Event
from instrument.events import Item as Item
from instrument.events import MessageItem as MessageItem
from instrument.events import ScalarItem as ScalarItem
from instrument.events import StagedArray as StagedArray
from instrument.events import StagedItem as StagedItem
from instrument.events import SummaryValue as SummaryValue
from instrument.events import ValueItem as ValueItem

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Scalar:
    """One number. Files of MindSpore's dialect hold it as float32, and exactly beside it where float32 cannot."""

    value: float


@dataclass(frozen=True, eq=False)
class Tensor(SummaryValue):
    """An array of any numeric dtype.

    `dtype` is the recorded type by name. For `"bfloat16"` the array is float32 (every value exact); otherwise
    it is the array's own.
    """

    array: NDArray[np.generic]
    dtype: str


@dataclass(frozen=True)
class Image(SummaryValue):
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
class Histogram(SummaryValue):
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
class Text(SummaryValue):
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
    """A loss landscape as arrays, float64 unless stated otherwise; `instrument.codec.landscape` makes and reads it.

    The loss `z` (rows, columns) stands at `y` (rows,) and `x` (columns,), which ascend; NaN and infinities are values
    that the network gave. A line has one row. `metrics` are further values on the same grid, (rows, columns) each.

    Of the checkpoints that span the plane, in their order: `numbers` (k,) int64, the steps or epochs; `path` (k, 2),
    the x and y that they are projected to; `path_loss` (k,), the loss there; `true_loss` (k,), that of the checkpoint
    itself; `unexplained` (k,), the length of what lies off the plane over that of the whole difference to the last
    one. The last two are NaN where the file does not say. k is 0 for planes without a path.

    `explained` are the shares of the squared lengths along the first principal axes, empty where nobody computed them.
    `convergence` is (x, y, loss) of the last checkpoint, empty where there is none. `metadata` says the rest, under
    names: always `decomposition`, `unit` and `step_per_epoch`, and of ours what `instrument.landscape.runner` lists.
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


#: How a recorder ended: closed, closed because of an exception, or neither (the program ended, or let go of it).
FINISHED, FAILED, ENDED = "finished", "failed", "ended"


@dataclass(frozen=True)
class Start:
    """What a recorder knew of its run when it began.

    `number` is 1 for the first start of a rank in a directory, for each further one it is greater than all it found.
    `unfinished` are the sizes in bytes, by name, of the files that did not say then how their recorder ended: one of
    these that has grown since was being written at the same time.
    """

    id: str
    number: int
    unfinished: Mapping[str, int]


@dataclass(frozen=True)
class End:
    """How a recorder ended: `status` is `FINISHED`, `FAILED` or `ENDED`; `reason` names the exception, if any."""

    status: str
    reason: str = ""


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
