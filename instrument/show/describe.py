"""What a run holds as plain dictionaries and numbers: the one source of tables and JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.layout import number
from instrument.codec import graph as graph_codec
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Damage
from instrument.runs.points import Points, Scalars
from instrument.runs.run import Run
from instrument.runs.starts import KILLED, RUNNING
from instrument.show.stages import stages
from instrument.values import FAILED, KINDS, Graph, Histogram, Image, Landscape, Tensor, Text

Row = dict[str, Any]


def overview(run: Run, name: str, wanted: Callable[[list[str]], list[str]] = list) -> Row:
    """Return all that a run holds but the single values, under the name that outputs give it."""
    result: Row = {"run": name, "path": run.path, "ranks": run.ranks, "state": run.state}
    result["files"] = [_file(path) for path in [*run.files, *run.traces]]
    chosen = {kind: found for kind, tags in run.tags().items() if (found := wanted(tags))}
    result["tags"] = {
        kind: [row for tag in tags for row in _summaries(run, kind, tag)] for kind, tags in chosen.items()
    }
    result["has_profile"] = bool(run.traces)
    result["lineage"] = run.lineage
    return result | missing(run)


def listed(run: Run, name: str) -> Row:
    """Return a run in a row: how many tags of each kind it has, its steps, and what is missing."""
    counts = run.contents.counts()
    kinds = {kind: counts[kind] for kind in KINDS} | {"profile": len(run.traces)}
    row: Row = {
        "run": name,
        "path": run.path,
        "ranks": run.ranks,
        "state": run.state,
        "tags": {kind: count for kind, count in kinds.items() if count},
    }
    first, last, wall_time = run.extent() or (None, None, None)
    row |= {"first_step": first, "last_step": last, "last_wall_time": wall_time}
    row["superseded_points"] = run.contents.superseded()
    nonfinite = run.nonfinite().values()
    row["nonfinite_points"] = sum(found.points for found in nonfinite)
    row["first_nonfinite_step"] = min((found.first_step for found in nonfinite), default=None)
    return row | {f"{what.replace(' ', '_')}s": count for what, count in _losses(run).items()}


def ending(state: str) -> str:
    """Return the state of a run where somebody should know of it: it is at work, or ended before its time."""
    return state if state in (RUNNING, FAILED, KILLED) else ""


def losses(run: Run) -> str:
    """In words what is missing of a run; empty where nothing is."""
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in _losses(run).items() if count)


def _losses(run: Run) -> dict[str, int]:
    torn = sum(damage.torn for damage in run.damage)
    missing_events = sum(gap.events for gap in run.gaps)
    return {"missing event": missing_events, "damaged place": len(run.damage) - torn, "unfinished end": torn}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested dictionaries and lists with the way to each, as in `train.algorithm.network`.

    Of a data pipeline the leaves are its stages: `dataset.stage_1`, ...
    """
    if path == "dataset" and isinstance(value, dict) and "op_type" in value:
        yield from ((f"{path}.{name}", text) for name, text in stages(value))
    elif isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def missing(run: Run) -> Row:
    """What the recorder says is missing, and what could not be read."""
    return {"gaps": [asdict(gap) for gap in run.gaps], "damage": [damaged(damage) for damage in run.damage]}


def damaged(damage: Damage) -> Row:
    """Return a damaged place as a row: the file, where in it, how long, and why."""
    row = asdict(damage)
    return {"file": row.pop("path"), **row}


def _file(path: str) -> Row:
    name = names.recognise(os.path.basename(path))
    device, host = (-1, "") if name is None else name.writer
    with OpenFile(path) as file:
        size = file.size_bytes
    return {"file": path, "bytes": size, "device": device, "host": host}


def _summaries(run: Run, kind: str, tag: str) -> list[Row]:
    """One row for each writer of a tag."""
    standing = run.points(kind, tag).by_writer()
    everything = run.points(kind, tag, superseded=True).by_writer()
    return [summary(points, len(everything[writer]) - len(points)) for writer, points in standing.items()]


def summary(points: Points, superseded_points: int = 0) -> Row:
    """Return the points of one writer in a row: how many, from which step to which, ends and extremes of numbers."""
    device, host = points.writers[0]
    row: Row = {"tag": points.tag, "device": device, "host": host, "points": len(points)}
    row |= {"superseded_points": superseded_points}
    row |= {"first_step": int(points.step[0]), "last_step": int(points.step[-1])}
    row |= {"last_wall_time": float(points.wall_time.max())}
    return row | (_numbers(points) if isinstance(points, Scalars) else {})


def _numbers(points: Scalars) -> Row:
    """Return the first and the last value, the extremes with their steps, and what is no finite number."""
    values, step = points.value, points.step
    row: Row = {"first": float(values[0]), "last": float(values[-1])}
    for name, find in (("min", np.nanargmin), ("max", np.nanargmax)):
        place = None if np.isnan(values).all() else int(find(values))
        row[name] = None if place is None else float(values[place])
        row[f"{name}_step"] = None if place is None else int(step[place])
    row |= {"nan_count": int(np.isnan(values).sum())}
    row |= {"positive_infinity_count": int((values == np.inf).sum())}
    row |= {"negative_infinity_count": int((values == -np.inf).sum())}
    broken = np.flatnonzero(~np.isfinite(values))
    return row | {"first_nonfinite_step": int(step[broken[0]]) if broken.size else None}


def not_finite(row: Row) -> str:
    """Return in words how many values of a summary are no finite numbers, and from which step on; empty for none."""
    count = sum(row[key] for key in ("nan_count", "positive_infinity_count", "negative_infinity_count"))
    return f"{count} from step {row['first_nonfinite_step']}" if count else ""


def listed_not_finite(row: Row) -> str:
    """Return the same of a row of `listed`."""
    count = row["nonfinite_points"]
    return f"{count} NaN or infinite from step {row['first_nonfinite_step']}" if count else ""


def series_of(run: Run, name: str, wanted: Callable[[list[str]], list[str]], superseded: bool) -> Row:
    """Return every point of the tags that are `wanted`, one series for each kind and tag.

    `superseded_points` of a series counts those that are left out.
    """
    series = []
    for kind, tags in run.tags().items():
        for tag in wanted(tags):
            points = run.points(kind, tag, superseded)
            count = len(run.points(kind, tag, superseded=True)) - len(points)
            series.append({"kind": kind, "tag": tag, "superseded_points": count, "values": _points(points)})
    return {"run": name, "path": run.path, "series": series, **missing(run)}


def _points(points: Points) -> list[Row]:
    rows = []
    for index, step in enumerate(points.step.tolist()):
        device, host = points.writers[points.writer_index[index]]
        row = {"step": step, "wall_time": float(points.wall_time[index]), "device": device, "host": host}
        row["superseded"] = bool(points.superseded[index])
        try:
            row |= value(points.decode(index))
        except CorruptMessage as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def value(decoded: Any) -> Row:
    """What is said of one value: of a number itself, of anything larger its size and extremes."""
    describe: Callable[[Any], Row] = _DESCRIBE[type(decoded)]
    return describe(decoded)


#: What `value` may say, of all kinds, and `error` of a value that is damaged.
FACTS = (
    "value", "width", "height", "channels", "mapping", "bytes", "dtype", "shape", "min", "max", "nan_count", "count",
    "mean", "positive_infinity_count", "negative_infinity_count", "nodes", "text", "error",
)  # fmt: skip


def words(facts: Row) -> str:
    """Return the facts of a value on one line, those that are empty left out."""
    return ", ".join(f"{key.replace('_', ' ')} {_word(fact)}" for key, fact in facts.items() if fact != "")


def _word(fact: Any) -> str:
    if isinstance(fact, list):
        return "x".join(map(str, fact)) or "scalar"
    return number(fact) if fact is None or isinstance(fact, (int, float)) else str(fact)


def _tensor(tensor: Tensor) -> Row:
    return {"dtype": tensor.dtype, "shape": list(tensor.array.shape), **_extremes(tensor.array)}


def _histogram(histogram: Histogram) -> Row:
    finite = histogram.count - histogram.nan_count
    finite -= histogram.positive_infinity_count + histogram.negative_infinity_count
    return {
        "count": histogram.count,
        "min": histogram.min,
        "max": histogram.max,
        "mean": histogram.sum / finite if finite > 0 else math.nan,
        "nan_count": histogram.nan_count,
        "positive_infinity_count": histogram.positive_infinity_count,
        "negative_infinity_count": histogram.negative_infinity_count,
    }


def _image(image: Image) -> Row:
    size = {"width": image.width, "height": image.height, "channels": image.channels}
    return {**size, "bytes": len(image.data), "mapping": image.mapping}


def _graph(graph: Graph) -> Row:
    return {"nodes": sum(1 for _ in graph_codec.nodes(graph)), "bytes": len(graph.data)}


def _landscape(landscape: Landscape) -> Row:
    return {"bytes": len(landscape.data)}


_DESCRIBE: dict[type, Callable[[Any], Row]] = {
    float: lambda number: {"value": number},
    Tensor: _tensor,
    Histogram: _histogram,
    Image: _image,
    Graph: _graph,
    Landscape: _landscape,
    Text: lambda found: {"text": found.text},
}


def _extremes(array: NDArray[Any]) -> Row:
    """The smallest and the largest element but NaN (None where there is none), and how many are NaN.

    Complex numbers have no order.
    """
    is_nan = np.isnan(array)
    numbers = array[:0] if array.dtype.kind == "c" else array[~is_nan]
    low, high = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {"min": low, "max": high, "nan_count": int(is_nan.sum())}


def plain(value: Any) -> Any:
    """Return the same for standard JSON: NaN and the infinities, which it has no word for, as texts.

    A surrogate that stands for a byte of a name that is not UTF-8, which it has no character for, is `\\udcXX`.
    """
    if isinstance(value, dict):
        return {plain(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
