"""A tensor larger than the ring, written before the rest of its event is known.

What is added to a recorder may change before `record`, and a copy of it would cost its memory once more. So it is sent
to a worker at once, which writes it behind what is committed: a frame of its own, whose time and step come last and
take a fixed number of bytes. They are missing until `record` sends what else belongs to the event; a reader meanwhile
sees a frame that is still being written.

Whatever else is committed first is written over it, and the end cuts it off. Where it stands is told in shared memory,
so that a worker's successor can finish it, and a recorder that has to write something else first can read it back.

This is for MindSpore's dialect alone: readers of TensorBoard's files keep what they have read of a frame, and never
recover where other bytes come in its place.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from instrument.codec import event as event_codec
from instrument.eventfile import frame
from instrument.eventfile.crc import crc32c, mask

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Ahead(NamedTuple):
    """What stands behind the committed length of the first file: sent with a ticket, ahead of the event with number
    `sequence`.

    Its tail belongs at `end`, which is 0 where it could not be written, and `crc` is the checksum so far. The values
    stand at `values_at`, as they were given or, with `has_singles`, as float32, which holds them all.
    """

    ticket: int = 0
    sequence: int = 0
    values_at: int = 0
    has_singles: int = 0
    end: int = 0
    crc: int = 0

    def tail(self, wall_time: float, step: int) -> bytes:
        """What finishes the frame."""
        time_and_step = event_codec.encode_tail(wall_time, step)
        return time_and_step + frame.FOOTER.pack(mask(crc32c(time_and_step, self.crc)))


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
