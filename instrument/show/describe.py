"""What a run holds as plain dictionaries and numbers: the one source of tables and JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.codec import graph as graph_codec
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.access import OpenFile
from instrument.read.points import Points, Scalars
from instrument.read.run import Run
from instrument.values import Graph, Histogram, Image, Landscape, Tensor, Text

Row = dict[str, Any]


def overview(run: Run) -> Row:
    """All that a run holds but the single values."""
    result: Row = {"name": run.name, "path": run.path, "ranks": run.ranks}
    result["files"] = [_file(path) for path in [*run.files, *run.traces]]
    result["tags"] = {
        kind: [row for tag in tags for row in _summaries(run, kind, tag)] for kind, tags in run.tags().items()
    }
    result["has_profile"] = bool(run.traces)
    result["lineage"] = run.lineage
    return result | missing(run)


def listed(run: Run, name: str) -> Row:
    """A run in a row: how many tags of each kind it has, its steps, and what is missing."""
    kinds = {kind: len(tags) for kind, tags in run.tags().items()} | {"profile": len(run.traces)}
    row: Row = {
        "run": name,
        "path": run.path,
        "ranks": run.ranks,
        "tags": {kind: count for kind, count in kinds.items() if count},
    }
    first, last, wall_time = run.extent() or (None, None, None)
    row |= {"first_step": first, "last_step": last, "last_wall_time": wall_time}
    row["replaced_points"] = run.contents.replaced(run.contents.keys())
    return row | {f"{what.replace(' ', '_')}s": count for what, count in _losses(run).items()}


def losses(run: Run) -> str:
    """In words what is missing of a run; empty where nothing is."""
    return ", ".join(f"{count} {what}{'s' * (count != 1)}" for what, count in _losses(run).items() if count)


def _losses(run: Run) -> dict[str, int]:
    torn = sum(damage.torn for damage in run.damage)
    missing_events = sum(gap.events for gap in run.gaps)
    return {"missing event": missing_events, "damaged place": len(run.damage) - torn, "unfinished end": torn}


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries and lists with the way to each, as in `dataset.children[0].op_type`."""
    if isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from flat(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from flat(inner, f"{path}[{index}]")
    else:
        yield path, value


def missing(run: Run) -> Row:
    """What the recorder says is missing, and what could not be read."""
    return {"gaps": [asdict(gap) for gap in run.gaps], "damage": [asdict(damage) for damage in run.damage]}


def _file(path: str) -> Row:
    name = os.path.basename(path)
    parts = names.parse(name) or names.parse(name, names.PROFILE)
    assert parts is not None
    with OpenFile(path) as file:
        size = file.size_bytes
    return {"name": name, "bytes": size, "device": parts.device, "host": parts.host}


def _summaries(run: Run, kind: str, tag: str) -> list[Row]:
    """One row for each writer of a tag."""
    standing = run.points(kind, tag).by_writer()
    everything = run.points(kind, tag, superseded=True).by_writer()
    return [summary(points, len(everything[writer]) - len(points)) for writer, points in standing.items()]


def summary(points: Points, superseded: int = 0) -> Row:
    """The points of one writer in a row: how many, from which step to which, and the ends and extremes of numbers."""
    device, host = points.writers[0]
    row: Row = {"tag": points.tag, "device": device, "host": host, "points": len(points), "superseded": superseded}
    row |= {"first_step": int(points.step[0]), "last_step": int(points.step[-1])}
    row |= {"last_wall_time": float(points.wall_time.max())}
    if isinstance(points, Scalars):
        row |= {"first": float(points.value[0]), "last": float(points.value[-1]), **_extremes(points.value)}
    return row


def points_of(run: Run, tag: str, superseded: bool) -> Row:
    """Every point of a tag, for each kind that has it; `not_shown` counts those left out as superseded.

    Raises:
        NoSuchRun: no kind has it; the message names the nearest.
    """
    kinds, not_shown = {}, {}
    for kind in run.kinds(tag):
        points = run.points(kind, tag, superseded)
        kinds[kind] = _points(points)
        not_shown[kind] = len(run.points(kind, tag, superseded=True)) - len(points)
    shown = {"tag": tag, "kinds": kinds, "not_shown": not_shown}
    return {"name": run.name, "path": run.path, **shown, **missing(run)}


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
        "nan": histogram.nan_count,
        "positive_infinity": histogram.positive_infinity_count,
        "negative_infinity": histogram.negative_infinity_count,
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
    """The smallest and the largest element but NaN (None where there is none), and how many are NaN."""
    is_nan = np.isnan(array)
    numbers = array[~is_nan]
    low, high = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {"min": low, "max": high, "nan": int(is_nan.sum())}


def plain(value: Any) -> Any:
    """The same for standard JSON, which has no word for them: NaN and the infinities as texts."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
