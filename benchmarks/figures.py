"""From single runs to what they say: medians, ratios, targets, and the tables of README.md."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from workloads import LIMIT, OURS, WORKLOADS, WRITERS

Run = dict[str, Any]
#: Workload -> writer -> figure -> median; None stands for "not within the time that was waited".
Medians = dict[str, dict[str, dict[str, float | None]]]


class Figure(NamedTuple):
    """How a figure is called. `is_cost`: less is better."""

    label: str
    is_cost: bool = True


FIGURES = {
    "step_us_p50": Figure("training thread, p50, us a step"),
    "step_us_p99": Figure("training thread, p99, us a step"),
    "step_us_max": Figure("training thread, worst step, us"),
    "wall_s": Figure("until all is on disk, s"),
    "cpu_s": Figure("CPU of the whole tree, s"),
    "mb_per_s": Figure("MB/s until all is on disk", is_cost=False),
    "helper_cpu_ms": Figure("CPU outside the training thread's calls, ms a step"),
    "wall_ms_per_step": Figure("until all is on disk, ms a step"),
    "cpu_ms_per_step": Figure("CPU of the whole tree, ms a step"),
    "misplaced_values": Figure("values counted unlike np.histogram"),
    "processes": Figure("processes"),
    "first_record_ms": Figure("constructor and first record, ms"),
    "visible_ms": Figure("then until another process can read it, ms"),
    "close_ms": Figure("close with nothing left to write, ms"),
    "tree_pss_mb": Figure("whole tree, peak PSS above the start, MB"),
    "worker_pss_mb": Figure("largest helper process, peak PSS, MB"),
    "worker_private_mb": Figure("the same without shared memory, MB"),
    "slowdown_percent": Figure("typical step slower by, %"),
    "blocks_percent": Figure("ten steps slower than their neighbours by, %"),
    "blocks_percent_low": Figure("lower end of its 95 % interval, %"),
    "blocks_percent_high": Figure("upper end of it, %"),
    "step_ms": Figure("typical step, ms"),
    "step_ms_without": Figure("typical step without callbacks, ms"),
    "hook_ms": Figure("of it in the collector's hooks, ms a step"),
    "extra_wall_s": Figure("whole training longer by, s"),
    "copy_4mb_us": Figure("copy of 4 MB into touched shared memory, us"),
    "copy_64mb_us": Figure("copy of 64 MB into touched shared memory, us"),
    "write_4mb_us": Figure("write of 4 MB, us"),
    "crc32c_4mb_us": Figure("CRC-32C of 4 MB, us"),
    "histogram_ms": Figure("np.histogram of 1M float32 into 90 buckets, ms"),
    "png_default_ms": Figure("PNG of 1792x896 by Pillow, default level, ms"),
    "png_fastest_ms": Figure("the same, level 1, ms"),
    "zlib_default_ms": Figure("zlib of its 4.8 MB, default level, ms"),
    "zlib_fastest_ms": Figure("the same, level 1, ms"),
}


#: Others' load is counted in ticks of 10 ms: in a shorter window it says nothing.
_LEAST_WINDOW_S = 0.5


class Target(NamedTuple):
    """Our figure is to be at most (at least, where more is better) `factor` times that of `writer`, or `factor`
    itself where there is none; `of` is another figure to be compared with than our own."""

    workload: str
    figure: str
    factor: float
    writer: str = ""
    of: str = ""


TARGETS = (
    Target("scalars", "step_us_p50", 8),
    Target("scalars", "step_us_p50", 1 / 15, "mindspore"),
    Target("scalars", "step_us_p50", 1 / 15, "torch"),
    Target("scalars", "step_us_p99", 3, OURS, "step_us_p50"),
    Target("scalars", "wall_s", 0.6),
    Target("scalars", "cpu_s", 1 / 20, "mindspore"),
    Target("tensors_4mb_paced", "step_us_p50", 2, LIMIT),
    Target("tensors_4mb", "mb_per_s", 800),
    Target("tensors_4mb", "mb_per_s", 50, "mindspore"),
    Target("tensors_4mb", "mb_per_s", 2, "tensorboardX"),
    Target("tensors_4mb", "cpu_s", 1 / 80, "mindspore"),
    Target("tensors_64mb", "mb_per_s", 800),
    Target("histograms_paced", "step_us_p50", 2, LIMIT),
    Target("histograms", "helper_cpu_ms", 3),
    Target("histograms", "misplaced_values", 0),
    Target("images_paced", "step_us_p50", 2, LIMIT),
    Target("images", "helper_cpu_ms", 1, "mindspore"),
    Target("images", "wall_ms_per_step", 1, "mindspore"),
    Target("idle", "cpu_s", 0.01),
    Target("startup", "first_record_ms", 15),
    Target("startup", "visible_ms", 100),
    Target("startup", "close_ms", 50),
    Target("memory_4mb", "tree_pss_mb", 60),
    Target("memory_64mb", "tree_pss_mb", 60),
    Target("memory_4mb", "worker_pss_mb", 45),
    Target("training_every_step", "slowdown_percent", 3),
    Target("training_every_step", "blocks_percent", 3),
    Target("training_every_tenth", "slowdown_percent", 1),
    Target("training_every_tenth", "blocks_percent", 1),
)


def summarise(runs: Sequence[Run]) -> dict[str, Any]:
    """Medians of every figure, ratios of ours to each other writer's, and how the targets are met."""
    medians = _medians(runs)
    return {"medians": medians, "ratios": _ratios(medians), "targets": _targets(medians)}


def _medians(runs: Sequence[Run]) -> Medians:
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if "failure" not in run:
            cells.setdefault((run["workload"], run["writer"]), []).append(run["figures"])
    medians: Medians = {}
    for (workload, writer), found in cells.items():
        keys = [key for key in found[0] if key not in ("versions", "opened_ns")]
        medians.setdefault(workload, {})[writer] = {key: _median([run.get(key) for run in found]) for key in keys}
    return medians


def _median(values: Iterable[float | None]) -> float | None:
    median = statistics.median(math.inf if value is None else value for value in values)
    return median if math.isfinite(median) else None


def _ratios(medians: Medians) -> dict[str, dict[str, dict[str, float]]]:
    """Workload -> figure -> other writer -> ours divided by its."""
    ratios: dict[str, dict[str, dict[str, float]]] = {}
    for workload, by_writer in medians.items():
        for figure in WORKLOADS[workload].figures:
            our = by_writer.get(OURS, {}).get(figure)
            others = {writer: found.get(figure) for writer, found in by_writer.items() if writer != OURS}
            if our is not None:
                found = {writer: our / other for writer, other in others.items() if other}
                ratios.setdefault(workload, {})[figure] = found
    return ratios


def _targets(medians: Medians) -> list[dict[str, Any]]:
    judged = []
    for target in TARGETS:
        our = medians.get(target.workload, {}).get(OURS, {}).get(target.figure)
        bound: float | None = target.factor
        if target.writer:
            reference = medians.get(target.workload, {}).get(target.writer, {}).get(target.of or target.figure)
            bound = None if reference is None else target.factor * reference
        is_met = None
        if our is not None and bound is not None:
            is_met = our <= bound if FIGURES[target.figure].is_cost else our >= bound
        judged.append({**target._asdict(), "bound": bound, "ours": our, "is_met": is_met})
    return judged


# ---------------------------------------------------------------------- tables

_NOT_COMPARED = (
    "misplaced_values", "processes", "slowdown_percent", "blocks_percent", "blocks_percent_low", "blocks_percent_high",
)  # fmt: skip
#: A ratio to what shows as 0.000 is noise.
_LEAST_COMPARED = 0.0005


def markdown(report: dict[str, Any]) -> str:
    """The tables of a report, as `write.py` prints it."""
    medians: Medians = report["medians"]
    parts = [_about(report)]
    for name, workload in WORKLOADS.items():
        if name in medians:
            parts.append(f"### `{name}`: {workload.title}\n\n{_table(workload.figures, medians[name])}")
    parts.append(f"### Targets\n\n{_target_table(report['targets'])}")
    parts += [f"- {line}" for line in _failures(report["runs"])]
    return "\n\n".join(parts) + "\n"


def _about(report: dict[str, Any]) -> str:
    machine = report["machine"]
    measured = [run["figures"] for run in report["runs"] if "failure" not in run]
    loads = sorted(found["other_load"] for found in measured if found["window_s"] > _LEAST_WINDOW_S)
    load = f"; others kept {statistics.median(loads):.2f} cores busy (median), {loads[-1]:.2f} at most" if loads else ""
    lines = [
        f"{report['date']}{', quick' if report['quick'] else ''}, {machine['cores']} cores ({machine['cpu']}), "
        f"{machine['memory_gb']:.0f} GB, Linux {machine['kernel']}, {machine['file_system']}, "
        f"Python {machine['python']}; {report['repetitions']} repetitions{load}.",
        *(
            f"- {writer}: " + ", ".join(f"{name} {version}" for name, version in packages.items())
            for writer, packages in report["versions"].items()
        ),
        *(f"- {writer}: not measured, {reason}" for writer, reason in report["missing"].items()),
    ]
    return "\n".join([lines[0], "", *lines[1:]])


def _table(figures: Sequence[str], by_writer: dict[str, dict[str, float | None]]) -> str:
    columns = [writer for writer in WRITERS if writer in by_writer]
    lines = [f"| | {' | '.join(columns)} |", f"|---|{'---:|' * len(columns)}"]
    for key in figures:
        cells = [_cell(key, by_writer[writer], None if writer == OURS else by_writer.get(OURS)) for writer in columns]
        if any(cells):
            lines.append(f"| {FIGURES[key].label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(key: str, figures: dict[str, float | None], ours: dict[str, float | None] | None) -> str:
    """A number, and how many times better ours is."""
    if key not in figures:
        return ""
    value = figures[key]
    if value is None:
        return "never"
    our = ours.get(key) if ours else None
    if our is None or our < _LEAST_COMPARED or value <= 0 or key in _NOT_COMPARED:
        return number(value)
    return f"{number(value)} ({number(value / our if FIGURES[key].is_cost else our / value)}x)"


def number(value: float) -> str:
    """A number as people read it: three digits that count."""
    if value == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(decimals, 3)}f}" if abs(value) < 100 else f"{value:,.0f}"


def _target_table(targets: Sequence[dict[str, Any]]) -> str:
    lines = ["| workload | figure | target | ours | |", "|---|---|---:|---:|---|"]
    for target in targets:
        if target["ours"] is None:
            continue
        figure = FIGURES[target["figure"]]
        relation = "at most" if figure.is_cost else "at least"
        bound = "?" if target["bound"] is None else number(target["bound"])
        basis = f" ({_factor(target['factor'])} {target['writer'] or ''})" if target["writer"] else ""
        verdict = {True: "met", False: "**missed**", None: "not measured"}[target["is_met"]]
        lines.append(
            f"| `{target['workload']}` | {figure.label} | {relation} {bound}{basis} | {number(target['ours'])} "
            f"| {verdict} |"
        )
    return "\n".join(lines)


def _factor(factor: float) -> str:
    return f"1/{1 / factor:.0f} of" if factor < 1 else f"{factor:g} x"


def _failures(runs: Sequence[Run]) -> list[str]:
    return [f"{run['writer']}, {run['workload']}: {run['failure']}" for run in runs if "failure" in run]
