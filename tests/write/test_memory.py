"""Shared memory that is mapped twice in a row: one memory, whichever half it is seen through."""

from __future__ import annotations

import errno
import gc
import mmap
import os
import platform
import re
import resource
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from instrument.write.pool_memory import map_twice, populate, round_up

PAGE = mmap.PAGESIZE
KERNEL = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
MAPS = Path("/proc/self/maps")


@pytest.fixture
def fd() -> Iterator[int]:
    """A file of eight pages, all of them zero."""
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * PAGE)
        yield file.fileno()


@pytest.mark.parametrize(
    ("size", "rounded"),
    [(0, 0), (1, PAGE), (PAGE - 1, PAGE), (PAGE, PAGE), (PAGE + 1, 2 * PAGE), (10 * PAGE + 7, 11 * PAGE)],
)
def test_sizes_are_rounded_up_to_pages(size: int, rounded: int) -> None:
    """A whole number of pages stays as it is."""
    assert round_up(size) == rounded


@pytest.mark.parametrize("pages", [1, 2, 5])
def test_both_halves_are_one_memory(fd: int, rng: np.random.Generator, pages: int) -> None:
    """Every byte that is written through one half is read through the other, and over the border between them."""
    size = pages * PAGE
    memory = map_twice(fd, 2 * PAGE, size)
    assert len(memory) == 2 * size
    assert bytes(memory) == bytes(2 * size)
    data = rng.bytes(size)
    memory[:size] = data
    assert bytes(memory[size:]) == data
    memory[size:] = data[::-1]
    assert bytes(memory[:size]) == data[::-1]
    for start in (1, PAGE - 1, size - 1):
        memory[start : start + size] = data
        assert bytes(memory[start : start + size]) == data
        assert bytes(memory[:size]) == data[-start:] + data[:-start]


def test_it_is_that_part_of_the_file(fd: int) -> None:
    """What is mapped is the file from the offset on; what stands beside it is not touched."""
    memory = map_twice(fd, 3 * PAGE, 2 * PAGE)
    memory[PAGE : 3 * PAGE] = b"a" * PAGE + b"b" * PAGE
    assert os.pread(fd, 8 * PAGE, 0) == bytes(3 * PAGE) + b"b" * PAGE + b"a" * PAGE + bytes(3 * PAGE)
    os.pwrite(fd, b"c", 4 * PAGE)
    assert (memory[PAGE], memory[3 * PAGE]) == (ord("c"), ord("c"))


def test_mappings_of_one_file_share_it(fd: int) -> None:
    """As those of a trainer and its worker do; two of different parts do not."""
    first, second, other = map_twice(fd, 0, PAGE), map_twice(fd, 0, PAGE), map_twice(fd, PAGE, PAGE)
    first[10] = 1
    assert (second[10], second[PAGE + 10], other[10]) == (1, 1, 0)


def test_it_outlives_the_descriptor() -> None:
    """The file may be closed."""
    with tempfile.TemporaryFile() as file:
        file.truncate(PAGE)
        memory = map_twice(file.fileno(), 0, PAGE)
    memory[PAGE + 5] = 3
    assert memory[5] == 3


@pytest.mark.skipif(not MAPS.exists(), reason="this system does not list what is mapped")
def test_nothing_stays_mapped(fd: int) -> None:
    """When nobody uses the memory any more, a slice of it included, its addresses are free again."""
    name = os.readlink(f"/proc/self/fd/{fd}").split(" ")[0]

    def mapped() -> int:
        return sum(name in line for line in MAPS.read_text().splitlines())

    memory = map_twice(fd, 0, PAGE)
    part = memory[5:10]
    assert mapped() == 2
    del memory
    gc.collect()
    assert mapped() == 2
    part[0] = 1
    del part
    gc.collect()
    assert mapped() == 0


def test_what_cannot_be_mapped(fd: int) -> None:
    """A closed descriptor and an offset inside a page are errors of the system, told as such."""
    with pytest.raises(OSError, match="Bad file descriptor") as bad:
        map_twice(10**6, 0, PAGE)
    assert bad.value.errno == errno.EBADF
    with pytest.raises(OSError, match="Invalid argument") as odd:
        map_twice(fd, 100, PAGE)
    assert odd.value.errno == errno.EINVAL


def test_populated_pages_are_there_at_once(fd: int) -> None:
    """Touching them afterwards has the kernel provide none; their content is what it was."""
    os.ftruncate(fd, 500 * PAGE)
    os.pwrite(fd, b"before", 3 * PAGE)
    memory = map_twice(fd, 0, 500 * PAGE)
    populate(memory)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for page in range(0, 1000 * PAGE, PAGE):
        memory[page + 10] = 1
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    if KERNEL >= (5, 14):
        assert faults < 100
    assert bytes(memory[3 * PAGE : 3 * PAGE + 11]) == b"before" + bytes(4) + b"\1"


def test_populating_a_part(fd: int) -> None:
    """Of some pages, and of none, it is no error."""
    memory = map_twice(fd, 0, 8 * PAGE)
    populate(memory[2 * PAGE : 4 * PAGE])
    populate(memory[:0])
    assert bytes(memory) == bytes(16 * PAGE)
