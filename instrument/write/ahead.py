"""A tensor larger than the ring, written before the rest of its event is known.

What is added to a recorder may change before `record`, and a copy of it would cost its memory once more. So it is sent
to a worker at once, which writes it behind what is committed: a frame of its own, whose time and step come last and
take a fixed number of bytes. They are missing until `record` sends what else belongs to the event; a reader meanwhile
sees a frame that is still being written.

Whatever else is committed first is written over it, and the end cuts it off. Where it stands is told in shared memory,
so that a worker's successor can finish it, and a recorder that has to write something else first can read it back.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from instrument.codec import wire
from instrument.eventfile import frame
from instrument.eventfile.crc import crc32c, mask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_WALL_TIME, _STEP = 1, 2
_TIME_AND_STEP = struct.Struct("<BdB10s")
TAIL_BYTES = _TIME_AND_STEP.size
_NONE = (0, 0, 0, 0)


class Ahead(NamedTuple):
    """What stands behind the committed lengths: sent with a ticket, ahead of the event with number `sequence`.

    `ends` are the offsets behind it in the files that there may be, where its tail belongs, and `crcs` the checksums so
    far; 0 in files that hold nothing of it, and in all of them where it could not be written. The values stand at
    `values_at` in the file `values_file`, as they were given or, with `has_singles`, as float32, which holds them all.
    """

    ticket: int = 0
    sequence: int = 0
    values_file: int = 0
    values_at: int = 0
    has_singles: int = 0
    ends: tuple[int, ...] = _NONE
    crcs: tuple[int, ...] = _NONE

    @property
    def is_written(self) -> bool:
        return any(self.ends)

    def tail(self, file: int, tail: bytes) -> list[bytes]:
        """What finishes the frame in a file; `tail` is what `time_and_step` gives."""
        return [tail, frame.FOOTER.pack(mask(crc32c(tail, self.crcs[file])))]


class Ticket(NamedTuple):
    """The payload of a tensor that was sent ahead."""

    number: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    nbytes: int = 0  # that are here

    def read(self, path: str, offset: int, has_singles: bool = False) -> NDArray[np.generic] | None:
        """Its values out of the file; None where they are not there any more."""
        import numpy as np

        code = np.dtype("<f4") if has_singles else self.dtype.newbyteorder("<")
        try:
            found = np.fromfile(path, code, math.prod(self.shape), offset=offset)
        except OSError:
            return None
        return found.astype(self.dtype, copy=False).reshape(self.shape) if found.size == math.prod(self.shape) else None


def time_and_step(wall_time: float, step: int) -> bytes:
    """The fields of an event that its frame has last. The step takes as many bytes as any could."""
    value = step & 0xFFFFFFFFFFFFFFFF
    varint = bytes(value >> shift & 0x7F | (0x80 if shift < 63 else 0) for shift in range(0, 70, 7))
    return _TIME_AND_STEP.pack(_WALL_TIME << 3 | wire.FIXED64, wall_time, _STEP << 3 | wire.VARINT, varint)
