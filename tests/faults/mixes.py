"""Random events that can be made again: what a trainer recorded is known from a seed and the step alone."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from instrument.codec import lineage, trace
from instrument.values import ArrayItem, Event, Item, MessageItem, Trace

#: Not float16: whether its exact bytes stand beside the others depends on the way that an event took.
_DTYPES = ("float32", "float32", "float32", "float64", "int64", "int32", "uint8")
_SHIFT_BYTES = 64 << 10  # arrays of different steps begin at different places of the noise


class Mix(NamedTuple):
    """How likely each kind is to be in an event, and how large its arrays are, in bytes, evenly over the magnitudes."""

    tensor: float = 0.0
    histogram: float = 0.0
    image: float = 0.0
    lineage: float = 0.0
    trace: float = 0.0
    least_bytes: int = 4
    most_bytes: int = 64 << 10
    #: Height and width of a picture.
    pixels: int = 32


#: Each event has a few scalars beside.
MIXES = {
    "scalars": Mix(),
    "small": Mix(tensor=0.3, histogram=0.1, image=0.05, lineage=0.1),
    "middle": Mix(tensor=0.3, histogram=0.1, image=0.05, lineage=0.1, most_bytes=512 << 10),
    "chunks": Mix(tensor=0.6, histogram=0.2, least_bytes=50 << 10, most_bytes=1 << 20),
    "mixed": Mix(tensor=0.3, histogram=0.1, image=0.1, lineage=0.1, most_bytes=4 << 20, pixels=128),
    "large": Mix(tensor=0.5, histogram=0.1, image=0.1, lineage=0.1, most_bytes=64 << 20, pixels=256),
    "64 MB": Mix(tensor=1.0, least_bytes=64 << 20, most_bytes=64 << 20),
    "pictures": Mix(image=0.8, tensor=0.2, pixels=512),
    "trace": Mix(trace=1.0, most_bytes=1 << 20),
}


def event(name: str, seed: int, step: int) -> Event:
    """The event of a step. Its time is the step, in seconds."""
    mix, rng = MIXES[name], np.random.default_rng([seed, step])
    if mix.trace:
        data = _array(rng, mix, "uint8").tobytes()
        piece = Trace(0, "cpu", 0, f"raw/{step % 7}", step, step + len(data), data)
        return Event(step, float(step), [MessageItem("trace", piece.name, trace.encode(piece))])
    scalars = {f"loss/{number}": float(rng.standard_normal()) for number in range(rng.integers(1, 6))}
    items = [] if name == "scalars" else _items(rng, mix, step)
    return Event(step, float(step), items, scalars)


def _items(rng: np.random.Generator, mix: Mix, step: int) -> list[Item]:
    """Tensors come last, as they do in the file where an event is larger than the ring."""
    items = []
    if rng.random() < mix.lineage:
        items.append(MessageItem("custom_lineage_data", "info", lineage.custom_message({"step": str(step)})))
    if rng.random() < mix.histogram:
        items.append(ArrayItem("histogram", "spread", _array(rng, mix, "float32", 4 << 20)))
    if rng.random() < mix.image:
        shape = (int(rng.integers(1, 4)), int(rng.choice((1, 3))), mix.pixels, mix.pixels)
        items.append(ArrayItem("image", "picture", _noise(math.prod(shape), rng).reshape(shape)))
    if rng.random() < mix.tensor:
        dtype = str(rng.choice(_DTYPES))
        items += [ArrayItem("tensor", f"weight/{step % 5}", _array(rng, mix, dtype), dtype)]
    return items


def _array(rng: np.random.Generator, mix: Mix, dtype: str, most_bytes: int = 64 << 20) -> NDArray[Any]:
    most_bytes = min(most_bytes, mix.most_bytes)
    size_bytes = int(2.0 ** rng.uniform(math.log2(mix.least_bytes), math.log2(most_bytes)))
    size_bytes -= size_bytes % np.dtype(dtype).itemsize
    return _noise(max(size_bytes, np.dtype(dtype).itemsize), rng).view(dtype)


def _noise(size_bytes: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """So many random bytes, which are numbers as float32: a view, since making them each time would take too long."""
    start = 64 * int(rng.integers(0, _SHIFT_BYTES // 64))
    whole = _all_noise(size_bytes > 8 << 20)
    return whole[start : start + size_bytes]


@functools.cache
def _all_noise(is_large: bool) -> NDArray[np.uint8]:
    """The small one is the beginning of the large one."""
    size_bytes = (64 << 20 if is_large else 8 << 20) + _SHIFT_BYTES
    return np.random.default_rng(0).standard_normal(size_bytes // 4, np.float32).view(np.uint8)
