"""Templates of values that differ in their numbers only: what is known of the first one holds for all.

The first value of a tag and of a size is read field by field. If it is a plain number, its bytes become a template;
later values are looked up by a hash of their tag and compared with the whole of it, all bytes but those of the number.
Whatever a writer puts around numbers (metadata, fields of its own, tensors of one element) is so read at one price.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Words = NDArray[np.uint64]

_TAG = 0x0A
#: Templates are kept in a few sizes: a value is compared in words of eight bytes, as many as its size has.
SIZES = (64, 256)
#: Zeros behind the data that values are looked up in.
PADDING = SIZES[-1]
#: What templates of one size may take.
_MOST_BYTES = 16 << 20
_SLOT_BITS = 16
_LENGTH_WEIGHT = np.uint64(0x9E3779B97F4A7C15)


class Templates:
    """Templates of values of up to `size_bytes` bytes; they are known by their index."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        width = size_bytes // 8
        self._weights = np.random.default_rng(size_bytes).integers(1, 1 << 63, width).astype(np.uint64) * np.uint64(2)
        self._weights += np.uint64(1)
        covered = np.arange(size_bytes) < np.arange(size_bytes + 1)[:, None]
        #: The first n bytes of a value, by n.
        self._first = (covered * np.uint8(0xFF)).astype(np.uint8).view("<u8")
        self._words, self._masks = np.empty((2, 64, width), "<u8")
        self._hashes: Words = np.empty(64, np.uint64)
        #: By template: its length, where its number stands in it, the size of that, and the number of its tag.
        self.facts = np.zeros((64, 4), np.int32)
        self._count = 0
        self._slots = np.full(1 << _SLOT_BITS, -1, np.int32)
        self._order: Indices = np.empty(0, np.int64)
        self._sorted: Words = np.empty(0, np.uint64)

    def match(self, data: NDArray[np.uint8], start: Indices, end: Indices) -> tuple[NDArray[np.int64], Words]:
        """Return the template of each value, -1 where there is none, and its hash, 0 for one that can have none."""
        length = end - start
        words = self._at(data, start)
        tag_end = 2 + data[start + 1].astype(np.int64)
        is_fit = (length >= 2) & (data[start] == _TAG) & (data[start + 1] < 0x80) & (tag_end <= length)
        hashes = (words & self._first[np.where(is_fit, tag_end, 0)]) @ self._weights
        hashes += length.astype(np.uint64) * _LENGTH_WEIGHT
        hashes = np.where(is_fit, hashes | np.uint64(1), np.uint64(0))
        template = self._slots[(hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)].astype(np.int64)
        template[~self._holds(template, words, length)] = -1
        missed = np.flatnonzero((template < 0) & is_fit)
        if missed.size and self._count:
            position = np.minimum(np.searchsorted(self._sorted, hashes[missed]), self._count - 1)
            other = self._order[position]
            other[~self._holds(other, words[missed], length[missed])] = -1
            template[missed] = other
        return template, hashes

    def _at(self, data: NDArray[np.uint8], start: Indices) -> Words:
        """Return the words from each place on."""
        size = self.size_bytes
        window: NDArray[np.void] = np.ndarray((data.size - size + 1,), f"V{size}", data, 0, (1,))
        words: Words = window[start].view("<u8").reshape(-1, size // 8)
        return words

    def _holds(self, template: Indices, words: Words, length: Indices) -> Mask:
        """Return True for each value that agrees with its template; a value with the template -1 does not."""
        if not self._count:
            return np.zeros(template.size, np.bool_)
        differs = words ^ self._words.take(template, axis=0, mode="clip")
        differs &= self._masks.take(template, axis=0, mode="clip")
        length_of = self.facts[:, 0].take(template, mode="clip")
        same: Mask = (template >= 0) & (length_of == length) & ~differs.any(axis=1)
        return same

    def masks(self, template: Indices) -> NDArray[np.uint8]:
        """Return the bits of values that agree with templates in which they agree."""
        return self._masks[template].view(np.uint8)

    def is_known(self, hashes: Words) -> Mask:
        """Return which hashes are those of templates."""
        if not self._count:
            return np.zeros(hashes.size, np.bool_)
        same: Mask = self._sorted[np.minimum(np.searchsorted(self._sorted, hashes), self._count - 1)] == hashes
        return same

    def learn(
        self, data: NDArray[np.uint8], start: Indices, hashes: Words, facts: NDArray[np.int32], varying: Indices
    ) -> None:
        """Take values as templates: `facts` as they are kept; `varying` are spans (start, end) in each value.

        Of more than there is room for none is taken.
        """
        count = self._count + start.size
        if 2 * count * self.size_bytes > _MOST_BYTES:
            return
        while count > len(self._words):
            self._words, self._masks, self._hashes, self.facts = (
                np.concatenate([column, np.empty_like(column)])
                for column in (self._words, self._masks, self._hashes, self.facts)
            )
        new = slice(self._count, count)
        masks = self._first[facts[:, 0]]
        for index in range(varying.shape[1]):
            masks &= ~(self._first[varying[:, index, 0]] ^ self._first[varying[:, index, 1]])
        self._words[new], self._masks[new] = self._at(data, start), masks
        self._hashes[new], self.facts[new] = hashes, facts
        slots = (hashes >> np.uint64(64 - _SLOT_BITS)).astype(np.intp)
        is_free = self._slots[slots] < 0
        self._slots[slots[is_free]] = np.arange(self._count, count)[is_free]
        self._count = count
        self._order = np.argsort(self._hashes[:count])
        self._sorted = self._hashes[self._order]
