"""What this machine needs for the parts of the work: copying, writing, counting, compressing."""

from __future__ import annotations

import mmap
import os
import statistics
import time
import zlib
from collections.abc import Callable
from itertools import cycle
from typing import Any

import numpy as np
import workloads
import writers

_MB = 1_000_000


def measure(folder: str, repetitions: int) -> dict[str, float]:
    """Medians of so many repetitions; the figures' names end with their units."""
    arrays = workloads.normals(_MB)
    large = workloads.normals(16 * _MB)
    pixels = writers.grid(workloads.pictures()[0])
    raw = pixels.tobytes()
    next_array = cycle(arrays).__next__
    figures = {
        "copy_4mb_us": 1e6 * _median_s(_copier(arrays), 10 * repetitions),
        "copy_64mb_us": 1e6 * _median_s(_copier(large), repetitions),
        "write_4mb_us": 1e6 * _median_s(_writer(folder, next_array), repetitions),
        "histogram_ms": 1e3 * _median_s(lambda: writers.count(next_array()), repetitions),
        "png_default_ms": 1e3 * _median_s(lambda: writers.encode_png(pixels), repetitions // 4),
        "png_fastest_ms": 1e3 * _median_s(lambda: writers.encode_png(pixels, compress_level=1), repetitions // 4),
        "zlib_default_ms": 1e3 * _median_s(lambda: zlib.compress(raw), repetitions // 4),
        "zlib_fastest_ms": 1e3 * _median_s(lambda: zlib.compress(raw, 1), repetitions // 4),
    }
    try:
        from crc32c import crc32c
    except ImportError:
        return figures
    return figures | {"crc32c_4mb_us": 1e6 * _median_s(lambda: crc32c(next_array().data), repetitions)}


def _median_s(work: Callable[[], Any], repetitions: int) -> float:
    work()
    durations = []
    for _ in range(max(repetitions, 1)):
        started = time.perf_counter()
        work()
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)


def _copier(arrays: list[workloads.Array]) -> Callable[[], None]:
    """Copies of the arrays in turn, into shared memory that was touched before."""
    memory = np.frombuffer(mmap.mmap(-1, len(arrays) * arrays[0].nbytes), np.float32).reshape(len(arrays), -1)
    memory[:] = 0
    pairs = cycle(zip(memory, arrays, strict=True))

    def copy() -> None:
        target, source = next(pairs)
        target[:] = source

    return copy


def _writer(folder: str, next_array: Callable[[], workloads.Array]) -> Callable[[], None]:
    file = open(os.path.join(folder, "kernels"), "wb", buffering=0)  # noqa: SIM115  open as long as the process

    def write() -> None:
        file.write(next_array().data)

    return write
