"""Iterate over the valid frames of a file one by one, and report damaged regions."""

from __future__ import annotations

from collections.abc import Iterator

from instrument.eventfile import frame
from instrument.eventfile.blocks import Block, BlockReader, Damage


class EventFileReader:
    """The payloads of one event file in file order; after iterating, `damage` lists what was passed over.

    `offset` is where the frame of the payload yielded last begins, in bytes from the start of the file.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.offset = 0
        self.damage: list[Damage] = []

    def __iter__(self) -> Iterator[memoryview]:
        """Yield each payload, a copy that stays valid as long as it is kept."""
        blocks = BlockReader(self.path)
        self.damage = blocks.damage
        for block in blocks:
            self.damage = blocks.damage
            for start, payload in payloads(block):
                self.offset = block.base + start - frame.HEADER.size
                yield memoryview(bytes(payload))
        self.damage = blocks.damage


def payloads(block: Block) -> Iterator[tuple[int, memoryview]]:
    """Yield the start of each payload of a block, and a view of it, in file order."""
    frames = [(start, group.length) for group in block.groups for start in group.starts.tolist()]
    for start, length in sorted(frames):
        yield start, block.data[start : start + length]
