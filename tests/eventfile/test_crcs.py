"""Checksums of many strings at once equal those of each."""

from __future__ import annotations

import numpy as np
import pytest
from crc32c import crc32c

from instrument.eventfile import crcs
from instrument.eventfile.crc import mask, unmask


@pytest.mark.parametrize("length", [0, 1, 7, 38, 80, 81, 300])
@pytest.mark.parametrize("count", [1, 63, 64, 200])
def test_strings_of_one_length(rng: np.random.Generator, length: int, count: int) -> None:
    """Whichever way they are computed."""
    data = memoryview(rng.bytes(count * (length + 3)))
    starts = np.arange(count) * (length + 3)
    rows = np.ndarray((count, length), np.uint8, data, 0, (length + 3, 1))
    expected = [crc32c(data[start : start + length]) for start in starts.tolist()]
    assert crcs.of_strings(data, starts, rows).tolist() == expected
    assert crcs.masked(np.array(expected, np.uint32)).tolist() == [mask(crc) for crc in expected]
    assert [unmask(mask(crc)) for crc in expected] == expected


@pytest.mark.parametrize("lengths", [[], [5], [7] * 10, [0, 1, 255, 256, 2**32, 2**63, 2**64 - 1]])
def test_lengths(lengths: list[int]) -> None:
    """The masked checksum of a length's eight bytes."""
    expected = [mask(crc32c(length.to_bytes(8, "little"))) for length in lengths]
    assert crcs.of_lengths(np.array(lengths, np.uint64)).tolist() == expected
