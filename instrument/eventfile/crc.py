"""The masked CRC-32C of event files."""

from __future__ import annotations

from collections.abc import Iterable

from crc32c import crc32c

MASK_DELTA = 0xA282EAD8


def mask(crc: int) -> int:
    """Rotate right by 15 bits and add a constant, so that a checksum of checksums is no fixed point."""
    return (((crc >> 15) | (crc << 17)) + MASK_DELTA) & 0xFFFFFFFF


def masked_crc(pieces: Iterable[bytes | memoryview]) -> int:
    """The masked CRC-32C of the concatenation of `pieces`."""
    crc = 0
    for piece in pieces:
        crc = crc32c(piece, crc)
    return mask(crc)


def unmask(masked: int) -> int:
    """The checksum that `mask` made this of."""
    rotated = (masked - MASK_DELTA) & 0xFFFFFFFF
    return ((rotated >> 17) | (rotated << 15)) & 0xFFFFFFFF
