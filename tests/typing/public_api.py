"""The public interface as users write it, for a type checker; `test_typing.py` has mypy look at it.

Where a line is wrong on purpose, its comment says which error must be found, and mypy complains of a comment that has
none to silence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import instrument
from instrument import (
    Profile,
    Profiler,
    ProfilerActivity,
    ProfilerLevel,
    Run,
    StopAtEpoch,
    StopAtStep,
    SummaryCollector,
    SummaryLandscape,
    SummaryRecord,
    ops,
    profile,
    read,
    schedule,
    span,
)


def collect(folder: Path) -> list[object]:
    everything = SummaryCollector(
        folder,
        collect_freq=5,
        num_process=2,
        collect_specified_data={"histogram_regular": "conv.*", "collect_graph": False},
        keep_default_action=True,
        custom_lineage_data={"dataset": "digits", "scale": 0.5, "classes": 10},
        collect_tensor_freq=None,
        max_file_size=10**9,
        export_options={"tensor_format": "npy"},
        on_full="drop",
        system_metrics=2.5,
    )
    stats = everything.stats
    if stats is not None:
        counted: int = stats.events + stats.dropped
        print(counted, stats.stalled_seconds)
    SummaryCollector(folder, collect_freq="often")  # type: ignore[arg-type]
    SummaryCollector(folder, colect_freq=1)  # type: ignore[call-arg]
    return [everything, StopAtStep(20, 29, folder), StopAtEpoch(2, 2, "./run", profile_memory=True)]


def record(folder: str, batches: list[NDArray[np.float32]]) -> int:
    with SummaryRecord(folder, queue_bytes=1 << 22, system_metrics=True) as recorder:
        for step, batch in enumerate(batches, start=1):
            recorder.add_value("scalar", "mean", float(batch.mean()))
            recorder.add_value("tensor", "batch", batch)
            taken: bool = recorder.record(step, plugin_filter=lambda kind: kind != "tensor")
            if not taken:
                recorder.flush(sync=True)
        recorder.record("last")  # type: ignore[arg-type]
        recorder.set_mode("eval")
        return recorder.stats.events


def look(run: Run) -> dict[str, float]:
    loss = run.scalars("loss/auto")
    steps: NDArray[np.int64] = loss.step
    values: NDArray[np.float64] = loss.value
    last: float = loss[int(steps[-1])]
    for step, wall_time, value in loss:
        print(step + 1, wall_time, value * 2)
    features: NDArray[np.generic] = run.tensors("features")[10]
    counts: NDArray[np.int64] = run.histograms("conv1.weight/auto")[10].counts
    pixels: NDArray[np.uint8] = run.images("input_data/auto").pixels(10)
    print(features.shape, counts.sum(), pixels.shape, [gap.events for gap in run.gaps], run.damage[0].path)
    for surface in run.landscapes:
        print(surface.z.min(), surface.true_loss)
    word: str = loss[1]  # type: ignore[assignment]
    print(word, run.scalars(1), run.tags()["scalar"][0].upper())  # type: ignore[arg-type]
    return {"last": last, "least": float(values.min())}


@span("load")
def load(count: int) -> list[int]:
    return list(range(count))


def measure(folder: Path) -> str:
    plan = schedule(wait=1, warmup=1, active=3, repeat=2, skip_first=10)
    with Profiler(
        str(folder),
        schedule=plan,
        profiler_level=ProfilerLevel.Level0,
        activities=[ProfilerActivity.CPU],
        on_trace_ready=lambda profiler: print(profiler.analyse()),
    ) as profiler:
        for _ in load(20):
            with span("forward"):
                pass
            profiler.step()
    found: Profile = profile(folder)
    wrong: int = profiler.analyse().path  # type: ignore[assignment]
    print(wrong, read(folder).profile().steps["total_ns"].sum(), read(folder).profile().stesp)  # type: ignore[union-attr]
    load("many")  # type: ignore[arg-type]
    found.export_chrome_trace("timeline.json.gz")
    return str(found.key_averages().table(sort_by="mean_ns", row_limit=10))


def landscape(folder: str, evaluation: Any) -> None:
    SummaryLandscape(folder).compute(evaluation, size=40, metrics=["accuracy"])
    SummaryLandscape(folder).compute(evaluation, size="large")  # type: ignore[arg-type]


def main() -> None:
    summary = ops.ScalarSummary()
    summary("loss", 0.5)
    version: str = instrument.__version__
    print(version, look(read("./run")), read(Path("./run"), follow=True).name)
    instrument.nothing_of_the_kind()  # type: ignore[attr-defined]
