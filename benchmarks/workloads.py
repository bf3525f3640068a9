"""What is measured: the workloads, their sizes, and the values that are recorded.

Every writer records the same values: they are drawn from one seed. They are ready before the clock starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

LIMIT, OURS = "limit", "ours"
WRITERS = (LIMIT, OURS, "mindspore", "torch", "tensorboardX", "tensorboard")
_NO_TENSORBOARD = WRITERS[:-1]  # it has no helper for pictures and histograms, unless TensorFlow is there
_RECORDERS = WRITERS[1:]
_COLLECTORS = (OURS, "mindspore")

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Workload:
    """One workload.

    Args:
        figures: what the tables show of it, the most important one first; keys of `figures.FIGURES`.
        procedure: how it is measured, a key of `measure.PROCEDURES`.
        kind: what is recorded: "scalar" (five a step), "tensor", "histogram" or "image".
        steps: how many steps, or seconds where nothing is recorded; `quick_steps` with `--quick`, which passes over
            workloads where it is 0.
        elements: the size of an array.
        pause_s: the pause between two steps. Helpers keep up then: what a step costs is what its caller pays.
        warm_up: so many steps come first and are not measured, so that no start of a process, and no memory that is
            used for the first time, is among what a step costs.
        every: the collector's frequency in steps.
        cell_seconds: repetitions end when those of one writer together take longer.
    """

    name: str
    title: str
    figures: tuple[str, ...]
    procedure: str = "record"
    kind: str = "scalar"
    steps: int = 1
    quick_steps: int = 0
    elements: int = 0
    pause_s: float = 0.0
    warm_up: int = 0
    every: int = 0
    writers: tuple[str, ...] = WRITERS
    cell_seconds: float = 15.0

    def quick(self) -> Workload:
        """The same with few steps."""
        return replace(self, steps=self.quick_steps)


_LOOP = ("step_us_p50", "step_us_p99", "step_us_max")
_TRAINING = (
    "slowdown_percent", "blocks_percent", "blocks_percent_low", "blocks_percent_high", "step_ms", "step_ms_without",
    "hook_ms", "helper_cpu_ms", "extra_wall_s",
)  # fmt: skip

_ALL = (
    Workload(
        "scalars", "5 scalars a step, back to back, 20,000 steps",
        (*_LOOP, "wall_s", "cpu_s"), steps=20_000, quick_steps=2_000,
    ),
    Workload(
        "scalars_paced", "5 scalars a step, a step each ms, 1,000 steps",
        (*_LOOP, "cpu_s"), steps=1_000, pause_s=0.001,
    ),
    Workload(
        "tensors_4mb", "a float32 tensor of 4 MB a step, back to back, 50 steps",
        ("mb_per_s", "cpu_s", "step_us_p50"), kind="tensor", steps=50, quick_steps=6, elements=1_000_000,
    ),
    Workload(
        "tensors_4mb_paced", "a float32 tensor of 4 MB a step, a step each second",
        _LOOP, kind="tensor", steps=5, elements=1_000_000, pause_s=1.0, warm_up=10,
    ),
    Workload(
        "tensors_64mb", "a float32 tensor of 64 MB a step, back to back, 3 steps",
        ("mb_per_s", "cpu_s", "step_us_p50"), kind="tensor", steps=3, elements=16_000_000,
    ),
    Workload(
        "histograms", "a histogram of 1M float32 a step, back to back, 30 steps",
        ("helper_cpu_ms", "wall_ms_per_step", "cpu_ms_per_step", "misplaced_values"),
        kind="histogram", steps=30, quick_steps=4, elements=1_000_000, warm_up=10, writers=_NO_TENSORBOARD,
    ),
    Workload(
        "histograms_paced", "a histogram of 1M float32 a step, 10 steps a second",
        _LOOP, kind="histogram", steps=20, elements=1_000_000, pause_s=0.1, warm_up=10, writers=_NO_TENSORBOARD,
    ),
    Workload(
        "images", "a float32 batch of 32x3x224x224 a step, back to back, 10 steps",
        ("helper_cpu_ms", "wall_ms_per_step", "cpu_ms_per_step"),
        kind="image", steps=10, warm_up=2, writers=_NO_TENSORBOARD,
    ),
    Workload(
        "images_paced", "a float32 batch of 32x3x224x224 a step, a step each 0.8 s",
        _LOOP, kind="image", steps=5, pause_s=0.8, warm_up=2, writers=_NO_TENSORBOARD,
    ),
    Workload(
        "idle", "an open recorder that recorded one step, for 10 s",
        ("cpu_s", "processes"), procedure="idle", steps=10, quick_steps=1,
    ),
    Workload(
        "startup", "constructor, one record, close",
        ("first_record_ms", "visible_ms", "close_ms"), procedure="startup", quick_steps=1,
    ),
    Workload(
        "memory_4mb", "memory above the process before, with a backlog of 25 tensors of 4 MB",
        ("tree_pss_mb", "worker_pss_mb", "worker_private_mb"),
        procedure="memory", kind="tensor", steps=25, quick_steps=4, elements=1_000_000, writers=_RECORDERS,
    ),
    Workload(
        "memory_64mb", "memory above the process before, with a backlog of 2 tensors of 64 MB",
        ("tree_pss_mb", "worker_pss_mb", "worker_private_mb"),
        procedure="memory", kind="tensor", steps=2, elements=16_000_000, writers=(OURS, "mindspore", "tensorboardX"),
    ),
    Workload(
        "training_every_step", "LeNet-5 in graph mode with a collector, collect_freq=1",
        _TRAINING, procedure="training", steps=80, quick_steps=12, every=1, writers=_COLLECTORS, cell_seconds=110,
    ),
    Workload(
        "training_every_tenth", "LeNet-5 in graph mode with a collector, collect_freq=10",
        _TRAINING, procedure="training", steps=80, every=10, writers=_COLLECTORS, cell_seconds=110,
    ),
    Workload(
        "kernels", "what this machine needs for the parts of the work, in one thread",
        (
            "copy_4mb_us", "copy_64mb_us", "write_4mb_us", "crc32c_4mb_us", "histogram_ms",
            "png_default_ms", "png_fastest_ms", "zlib_default_ms", "zlib_fastest_ms",
        ),
        procedure="kernels", steps=20, quick_steps=2, writers=(LIMIT,),
    ),
)  # fmt: skip

WORKLOADS = {workload.name: workload for workload in _ALL}

SCALARS_A_STEP = 5
SCALAR_TAGS = tuple(f"metric/{index}" for index in range(SCALARS_A_STEP))


def numbers() -> list[list[float]]:
    """The scalars of 64 steps."""
    random = np.random.default_rng(0)
    return [random.random(SCALARS_A_STEP).tolist() for _ in range(64)]


def normals(elements: int) -> list[Array]:
    """Arrays of (elements,) float32; more than one, so that no cache holds what is copied."""
    random = np.random.default_rng(0)
    return [random.standard_normal(elements, np.float32) for _ in range(4 if elements <= 1_000_000 else 2)]


def pictures() -> list[Array]:
    """Two batches of (32, 3, 224, 224) float32 in [0, 1] that compress about as photographs do."""
    from PIL import Image

    random = np.random.default_rng(0)

    def plane() -> Array:
        coarse = Image.fromarray(random.random((14, 14), np.float32))
        fine = np.asarray(coarse.resize((224, 224), Image.Resampling.BICUBIC))
        return np.clip(fine + random.normal(scale=0.01, size=fine.shape), 0, 1).astype(np.float32)

    return [np.stack([plane() for _ in range(32 * 3)]).reshape(32, 3, 224, 224) for _ in range(2)]


def values(workload: Workload, hold: Callable[[Any], Any]) -> tuple[list[Any], list[Array]]:
    """The values of successive steps, each held as `hold` makes them, and the plain arrays behind them."""
    if workload.kind == "scalar":
        return [[hold(number) for number in step] for step in numbers()], []
    arrays = pictures() if workload.kind == "image" else normals(workload.elements)
    return [hold(array) for array in arrays], arrays
