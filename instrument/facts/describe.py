"""Describe a run as rows: plain dictionaries whose keys are the documented field names of all outputs.

The problem: a run is shown as tables, JSON, CSV, HTML and in a notebook, and all of them must give the same numbers.

The strategy: every fact is computed here once, as a row. Outputs lay rows out and add nothing. A row holds what JSON
has (None for what is not known, and NaN as a float), so that it can be kept in an index and sent to a page; the words
that go with some rows (`losses_text`, `nonfinite_text`) stand beside the functions that make these.

Rejected: a class for each row. The keys are what matters of a row: columns of CSV, fields of JSON, `--sort FIELD`. A
class would repeat each name and need a table back to the documented ones; docs/reference/output.md, which the tests
hold against these rows, is their type.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from instrument.analyse.layout import number
from instrument.codec import graph as graph_codec
from instrument.codec.lineage import RAN
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Damage
from instrument.facts.pipelines import stages
from instrument.runs.points import Points, Scalars
from instrument.runs.run import Run
from instrument.runs.starts import KILLED, RUNNING
from instrument.values import FAILED, KINDS, Graph, Histogram, Image, Landscape, Tensor, Text

Row = dict[str, Any]
#: A decoded value of a series.
Value = float | Tensor | Histogram | Image | Graph | Landscape | Text


def overview(run: Run, name: str, wanted: Callable[[list[str]], list[str]] = list) -> Row:
    """Return all that a run holds but the single values, under the name that outputs give it; `wanted` chooses tags."""
    result: Row = {"run": name, "path": run.path, "ranks": run.ranks, "state": run.state}
    result["files"] = [_file(path) for path in [*run.files, *run.traces]]
    chosen = {kind: matching for kind, tags in run.tags().items() if (matching := wanted(tags))}
    result["tags"] = {
        kind: [row for tag in tags for row in _summaries(run, kind, tag)] for kind, tags in chosen.items()
    }
    result["has_profile"] = bool(run.traces)
    result["lineage"] = run.lineage
    return result | gaps_and_damage(run)


def listing(run: Run, name: str) -> Row:
    """Return a run in one row: how many tags of each kind it has, its steps, and counts of what is missing."""
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
    row["nonfinite_points"] = sum(series.points for series in nonfinite)
    row["first_nonfinite_step"] = min((series.first_step for series in nonfinite), default=None)
    return row | {f"{thing.replace(' ', '_')}s": count for thing, count in _losses(run).items()}


def notable_state(state: str) -> str:
    """Return the state of a run that is at work or ended before its time, an empty text for all others."""
    return state if state in (RUNNING, FAILED, KILLED) else ""


def losses_text(run: Run) -> str:
    """Return what is missing of a run in words, an empty text if nothing is."""
    return ", ".join(f"{count} {thing}{'s' * (count != 1)}" for thing, count in _losses(run).items() if count)


def _losses(run: Run) -> dict[str, int]:
    """Return the number of lost things under their names in the singular."""
    torn = sum(damage.torn for damage in run.damage)
    missing_events = sum(gap.events for gap in run.gaps)
    return {"missing event": missing_events, "damaged place": len(run.damage) - torn, "unfinished end": torn}


def leaves(value: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of each leaf of nested dictionaries and lists, as in `train.algorithm.network`.

    The leaves of a data pipeline are its stages: `dataset.stage_1`, ... A patch is told by its number of lines and a
    digest.
    """
    if path == f"{RAN}.git.patch" and isinstance(value, str):
        digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:8]
        yield path, f"{len(value.splitlines())} lines (sha256 {digest})"
    elif path == "dataset" and isinstance(value, dict) and "op_type" in value:
        yield from ((f"{path}.{name}", text) for name, text in stages(value))
    elif isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def gaps_and_damage(run: Run) -> Row:
    """Return rows for what the recorder could not write, and for what cannot be read."""
    return {"gaps": [asdict(gap) for gap in run.gaps], "damage": [damage_row(damage) for damage in run.damage]}


def damage_row(damage: Damage) -> Row:
    """Return a damaged place as a row: the file, the offset and the length in bytes, and the reason."""
    row = asdict(damage)
    return {"file": row.pop("path"), **row}


def _file(path: str) -> Row:
    name = names.recognise(os.path.basename(path))
    device, host = (-1, "") if name is None else name.writer
    with OpenFile(path) as file:
        size = file.size_bytes
    return {"file": path, "bytes": size, "device": device, "host": host}


def _summaries(run: Run, kind: str, tag: str) -> list[Row]:
    """Return a row for each writer of a tag."""
    current = run.points(kind, tag).by_writer()
    recorded = run.points(kind, tag, superseded=True).by_writer()
    return [summary(points, len(recorded[writer]) - len(points)) for writer, points in current.items()]


def summary(points: Points, superseded_points: int = 0) -> Row:
    """Return the points of one writer in one row: count, first and last step, and of numbers the ends and extremes."""
    device, host = points.writers[0]
    row: Row = {"tag": points.tag, "device": device, "host": host, "points": len(points)}
    row |= {"superseded_points": superseded_points}
    row |= {"first_step": int(points.step[0]), "last_step": int(points.step[-1])}
    row |= {"last_wall_time": float(points.wall_time.max())}
    return row | (_numbers(points) if isinstance(points, Scalars) else {})


def _numbers(points: Scalars) -> Row:
    """Return the first and the last value, the extremes with their steps, and counts of NaN and infinities."""
    values, step = points.value, points.step
    row: Row = {"first": float(values[0]), "last": float(values[-1])}
    for name, find in (("min", np.nanargmin), ("max", np.nanargmax)):
        place = None if np.isnan(values).all() else int(find(values))
        row[name] = None if place is None else float(values[place])
        row[f"{name}_step"] = None if place is None else int(step[place])
    row |= {"nan_count": int(np.isnan(values).sum())}
    row |= {"positive_infinity_count": int((values == np.inf).sum())}
    row |= {"negative_infinity_count": int((values == -np.inf).sum())}
    nonfinite = np.flatnonzero(~np.isfinite(values))
    return row | {"first_nonfinite_step": int(step[nonfinite[0]]) if nonfinite.size else None}


def nonfinite_text(row: Row) -> str:
    """Return how many values of a `summary` are NaN or infinite, and from which step on; an empty text for none."""
    count = sum(row[key] for key in ("nan_count", "positive_infinity_count", "negative_infinity_count"))
    return f"{count} from step {row['first_nonfinite_step']}" if count else ""


def listing_nonfinite_text(row: Row) -> str:
    """Return the same for a row of `listing`."""
    count = row["nonfinite_points"]
    return f"{count} NaN or infinite from step {row['first_nonfinite_step']}" if count else ""


def series_of(run: Run, name: str, wanted: Callable[[list[str]], list[str]], superseded: bool) -> Row:
    """Return every point of the tags that `wanted` chooses, one series for each kind and tag.

    `superseded_points` of a series counts the points that are left out.
    """
    series = []
    for kind, tags in run.tags().items():
        for tag in wanted(tags):
            points = run.points(kind, tag, superseded)
            count = len(run.points(kind, tag, superseded=True)) - len(points)
            series.append({"kind": kind, "tag": tag, "superseded_points": count, "values": _points(points)})
    return {"run": name, "path": run.path, "series": series, **gaps_and_damage(run)}


def _points(points: Points) -> list[Row]:
    rows = []
    for index, step in enumerate(points.step.tolist()):
        device, host = points.writers[points.writer_index[index]]
        row = {"step": step, "wall_time": float(points.wall_time[index]), "device": device, "host": host}
        row["superseded"] = bool(points.superseded[index])
        try:
            row |= value_facts(points.decode(index))
        except CorruptMessage as error:
            row["error"] = str(error)
        rows.append(row)
    return rows


def value_facts(decoded: Value) -> Row:
    """Return the facts of one value: a number or a text itself, of anything larger its size and extremes."""
    describe: Callable[[Any], Row] = _DESCRIBE[type(decoded)]
    return describe(decoded)


#: The keys that `value_facts` may have, of all kinds, and `error` of a value that is damaged.
VALUE_FIELDS = (
    "value", "width", "height", "channels", "mapping", "bytes", "dtype", "shape", "min", "max", "nan_count", "count",
    "mean", "positive_infinity_count", "negative_infinity_count", "nodes", "text", "error",
)  # fmt: skip


def facts_text(facts: Row) -> str:
    """Return the facts of a value on one line, without those that are empty."""
    return ", ".join(f"{key.replace('_', ' ')} {_fact_text(fact)}" for key, fact in facts.items() if fact != "")


def _fact_text(fact: object) -> str:
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
    Text: lambda text: {"text": text.text},
}


def _extremes(array: NDArray[Any]) -> Row:
    """Return the smallest and the largest element but NaN, None if there is none, and the number of NaN.

    Complex numbers have no order, and so no extremes.
    """
    is_nan = np.isnan(array)
    numbers = array[:0] if array.dtype.kind == "c" else array[~is_nan]
    low, high = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {"min": low, "max": high, "nan_count": int(is_nan.sum())}
