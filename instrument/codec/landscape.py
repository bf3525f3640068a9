"""Loss landscapes: `LossLandscape`, kept as the serialised message."""

from __future__ import annotations

from instrument.codec import wire
from instrument.values import Landscape

NUMBER = 10


def encode(data: bytes) -> wire.Pieces:
    """The content of the field: the serialised message itself."""
    return [data]


def decode(data: memoryview) -> Landscape:
    return Landscape(bytes(data))
