"""The checksum against its definition, bit by bit."""

from __future__ import annotations

import numpy as np

from instrument.eventfile.crc import mask, masked_crc


def bitwise_crc32c(data: bytes) -> int:
    """CRC-32C as it is defined: the reflected polynomial 0x1EDC6F41, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_masked_crc_of_the_check_string() -> None:
    """The checksum of `123456789` is 0xE3069283 before the mask."""
    assert bitwise_crc32c(b"123456789") == 0xE3069283
    assert masked_crc([b"123456789"]) == mask(0xE3069283)


def test_mask_rotates_right_by_15_and_adds() -> None:
    """The mask is a rotation and an addition modulo 2**32."""
    assert mask(0) == 0xA282EAD8
    assert mask(1 << 15) == 0xA282EAD9
    assert mask(1) == 0xA282EAD8 + (1 << 17)
    assert mask(0xFFFFFFFF) == 0xA282EAD7


def test_masked_crc_does_not_depend_on_the_pieces(rng: np.random.Generator) -> None:
    """Any cut of the same bytes into pieces has the same checksum, that of the definition."""
    data = rng.bytes(200)
    expected = mask(bitwise_crc32c(data))
    cuts = sorted(rng.integers(0, 201, 5).tolist())
    pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, 200], strict=True)]
    assert masked_crc(pieces) == masked_crc([memoryview(data)]) == expected
