"""Describe a run as rows: dictionaries whose keys are the documented field names of all outputs.

The problem: a run is shown as tables, JSON, CSV, HTML and in a notebook, and all of them must give the same numbers.

The strategy: every fact is computed here once, as a row of a type of its own (`Listing`, `Summary`, ...). Outputs lay
rows out and add nothing. A row holds what JSON has (None for what is not known, and NaN as a float), so that it can be
kept in an index and sent to a page; the words that go with some rows (`losses_text`, `nonfinite_text`) stand beside the
functions that make these.

Rejected: dataclasses. The keys of a row are the public interface: columns of CSV, fields of JSON, `--sort FIELD`. A
TypedDict names and checks them, and is the dictionary that is printed; attributes would have to be mapped back to keys.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from instrument.analyse.layout import number
from instrument.codec import graph as graph_codec
from instrument.codec.lineage import RAN
from instrument.errors import CorruptMessage
from instrument.eventfile import names
from instrument.eventfile.access import OpenFile
from instrument.eventfile.blocks import Damage
from instrument.facts import rows
from instrument.runs.points import Points, Scalars
from instrument.runs.run import Run
from instrument.runs.starts import KILLED, RUNNING
from instrument.values import FAILED, KINDS, Graph, Histogram, Image, Landscape, Tensor, Text
from instrument.wording import counted

#: Chooses tags.
Chooser = Callable[[list[str]], list[str]]
#: A decoded value of a series.
Value = float | Tensor | Histogram | Image | Graph | Landscape | Text
#: Keys of a stage of a data pipeline, or of an operation in it, that hold its name.
_STAGE_NAMES = ("op_type", "tensor_op")


def overview(run: Run, name: str, wanted: Chooser = list) -> rows.Overview:
    """Return all that a run holds but the single values, under the name that outputs give it; `wanted` chooses tags."""
    chosen = {kind: matching for kind, tags in run.tags().items() if (matching := wanted(tags))}
    return {
        "run": name,
        "path": run.path,
        "ranks": run.ranks,
        "state": run.state,
        "files": [_file(path) for path in [*run.files, *run.traces]],
        "tags": {kind: [row for tag in tags for row in _summaries(run, kind, tag)] for kind, tags in chosen.items()},
        "has_profile": bool(run.traces),
        "lineage": run.lineage,
        **missing(run),
    }


def listing(run: Run, name: str) -> rows.Listing:
    """Return a run in one row: how many tags of each kind it has, its steps, and counts of what is missing."""
    counts = run.contents.counts()
    kinds = {kind: counts[kind] for kind in KINDS} | {"profile": len(run.traces)}
    first, last, wall_time = run.extent() or (None, None, None)
    nonfinite, losses = run.nonfinite().values(), _losses(run)
    return {
        "run": name,
        "path": run.path,
        "ranks": run.ranks,
        "state": run.state,
        "tags": {kind: count for kind, count in kinds.items() if count},
        "first_step": first,
        "last_step": last,
        "last_wall_time": wall_time,
        "superseded_points": run.contents.superseded(),
        "nonfinite_points": sum(series.points for series in nonfinite),
        "first_nonfinite_step": min((series.first_step for series in nonfinite), default=None),
        "missing_events": losses["missing event"],
        "damaged_places": losses["damaged place"],
        "unfinished_ends": losses["unfinished end"],
    }


def tags_text(row: rows.Listing) -> str:
    """Return in words how many tags of each kind a run has."""
    return ", ".join(f"{count} {kind}" for kind, count in row["tags"].items())


def notable_state(state: str) -> str:
    """Return the state of a run that is at work or ended before its time, an empty text for all others."""
    return state if state in (RUNNING, FAILED, KILLED) else ""


def losses_text(run: Run) -> str:
    """Return what is missing of a run in words, an empty text if nothing is."""
    return ", ".join(counted(count, noun) for noun, count in _losses(run).items() if count)


def _losses(run: Run) -> dict[str, int]:
    """Return the number of lost things under their nouns."""
    torn = sum(damage.torn for damage in run.damage)
    missing_events = sum(gap.events for gap in run.gaps)
    return {"missing event": missing_events, "damaged place": len(run.damage) - torn, "unfinished end": torn}


def missing(run: Run) -> rows.Missing:
    """Return rows for what the recorder could not write, and for what cannot be read."""
    return {"gaps": [asdict(gap) for gap in run.gaps], "damage": [damage_facts(damage) for damage in run.damage]}


def damage_facts(damage: Damage) -> dict[str, object]:
    """Return a damaged place as a row: the file, the offset and the length in bytes, and the reason."""
    row = asdict(damage)
    return {"file": row.pop("path"), **row}


def _file(path: str) -> rows.FileFacts:
    name = names.recognise(os.path.basename(path))
    device, host = (-1, "") if name is None else name.writer
    with OpenFile(path) as file:
        return {"file": path, "bytes": file.size_bytes, "device": device, "host": host}


def _summaries(run: Run, kind: str, tag: str) -> Iterator[rows.Summary]:
    """Yield a row for each writer of a tag."""
    recorded = run.points(kind, tag, superseded=True).by_writer()
    for writer, points in run.points(kind, tag).by_writer().items():
        superseded = len(recorded[writer]) - len(points)
        if isinstance(points, Scalars):
            yield number_summary(points, superseded)
        else:
            yield summary(points, superseded)


def summary(points: Points, superseded_points: int = 0) -> rows.Summary:
    """Return the points of one writer in one row."""
    device, host = points.writers[0]
    return {
        "tag": points.tag,
        "device": device,
        "host": host,
        "points": len(points),
        "superseded_points": superseded_points,
        "first_step": int(points.step[0]),
        "last_step": int(points.step[-1]),
        "last_wall_time": float(points.wall_time.max()),
    }


def number_summary(points: Scalars, superseded_points: int = 0) -> rows.NumberSummary:
    """Return the numbers of one writer in one row."""
    values, step = points.value, points.step
    least, greatest = (None, None) if np.isnan(values).all() else (int(np.nanargmin(values)), int(np.nanargmax(values)))
    nonfinite = np.flatnonzero(~np.isfinite(values))
    return {
        **summary(points, superseded_points),
        "first": float(values[0]),
        "last": float(values[-1]),
        "min": None if least is None else float(values[least]),
        "min_step": None if least is None else int(step[least]),
        "max": None if greatest is None else float(values[greatest]),
        "max_step": None if greatest is None else int(step[greatest]),
        "nan_count": int(np.isnan(values).sum()),
        "positive_infinity_count": int((values == np.inf).sum()),
        "negative_infinity_count": int((values == -np.inf).sum()),
        "first_nonfinite_step": int(step[nonfinite[0]]) if nonfinite.size else None,
    }


def nonfinite_text(row: rows.NonFinite) -> str:
    """Return how many of the numbers are NaN or infinite, and from which step on; an empty text for none."""
    count = row["nan_count"] + row["positive_infinity_count"] + row["negative_infinity_count"]
    return f"{count} from step {row['first_nonfinite_step']}" if count else ""


def listing_nonfinite_text(row: rows.Listing) -> str:
    """Return the same for a row of `listing`."""
    count = row["nonfinite_points"]
    return f"{count} NaN or infinite from step {row['first_nonfinite_step']}" if count else ""


# ---------------------------------------------------------------- points


def series_of(run: Run, name: str, wanted: Chooser, superseded: bool) -> rows.RunPoints:
    """Return every point of the tags that `wanted` chooses, one series for each kind and tag."""
    series: list[rows.SeriesFacts] = []
    for kind, tags in run.tags().items():
        for tag in wanted(tags):
            points = run.points(kind, tag, superseded)
            count = len(run.points(kind, tag, superseded=True)) - len(points)
            series.append({"kind": kind, "tag": tag, "superseded_points": count, "values": list(_points(points))})
    return {"run": name, "path": run.path, "series": series, **missing(run)}


def _points(points: Points) -> Iterator[rows.PointFacts]:
    for index, step in enumerate(points.step.tolist()):
        device, host = points.writers[points.writer_index[index]]
        yield {
            "step": step,
            "wall_time": float(points.wall_time[index]),
            "device": device,
            "host": host,
            "superseded": bool(points.superseded[index]),
            **value_facts(partial(points.decode, index)),
        }


def value_facts(decode: Callable[[], Value]) -> rows.ValueFacts:
    """Return the facts of one value: a number or a text itself, of anything larger its size and extremes.

    `decode` returns the value; of one that is damaged, as `CorruptMessage` says, there is the `error` only.
    """
    try:
        decoded = decode()
    except CorruptMessage as error:
        return {"error": str(error)}
    if isinstance(decoded, Tensor):
        return _tensor(decoded)
    if isinstance(decoded, Histogram):
        return _histogram(decoded)
    if isinstance(decoded, Image):
        size: rows.ValueFacts = {"width": decoded.width, "height": decoded.height, "channels": decoded.channels}
        return {**size, "bytes": len(decoded.data), "mapping": decoded.mapping}
    if isinstance(decoded, Graph):
        return {"nodes": sum(1 for _ in graph_codec.nodes(decoded)), "bytes": len(decoded.data)}
    if isinstance(decoded, Landscape):
        return {"bytes": len(decoded.data)}
    return {"text": decoded.text} if isinstance(decoded, Text) else {"value": decoded}


def _tensor(tensor: Tensor) -> rows.ValueFacts:
    """Return the dtype, the shape, the extremes but NaN (None if there are none), and the number of NaN.

    Complex numbers have no order, and so no extremes.
    """
    array = tensor.array
    is_nan = np.isnan(array)
    numbers = array[:0] if array.dtype.kind == "c" else array[~is_nan]
    low, high = (numbers.min().item(), numbers.max().item()) if numbers.size else (None, None)
    return {
        "dtype": tensor.dtype,
        "shape": list(array.shape),
        "min": low,
        "max": high,
        "nan_count": int(is_nan.sum()),
    }


def _histogram(histogram: Histogram) -> rows.ValueFacts:
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


def facts_text(facts: Mapping[str, object]) -> str:
    """Return the facts of a value on one line, without those that are empty."""
    return ", ".join(f"{key.replace('_', ' ')} {_fact_text(fact)}" for key, fact in facts.items() if fact != "")


def _fact_text(fact: object) -> str:
    if isinstance(fact, list):
        return "x".join(map(str, fact)) or "scalar"
    return number(fact) if fact is None or isinstance(fact, (int, float)) else str(fact)


# ---------------------------------------------------------------- lineage


def leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Yield the path and the value of each leaf of nested dictionaries and lists, as in `train.algorithm.network`.

    The leaves of a data pipeline are its stages, as calls, in the order in which data pass through them:
    `dataset.stage_1`, ... A stage takes the data of the one before it; one that joins several sources names them. A
    patch is told by its number of lines and a digest.
    """
    if path == f"{RAN}.git.patch" and isinstance(value, str):
        digest = hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()[:8]
        yield path, f"{len(value.splitlines())} lines (sha256 {digest})"
    elif path == "dataset" and isinstance(value, dict) and "op_type" in value:
        yield from ((f"{path}.{name}", text) for name, text in _stages(value, [0]))
    elif isinstance(value, dict) and (value or not path):
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from leaves(inner, f"{path}[{index}]")
    else:
        yield path, value


def _stages(stage: Mapping[str, Any], last: list[int]) -> Iterator[tuple[str, str]]:
    """Yield name and text of the stages below one and of itself; `last` holds the number of the last stage so far."""
    inputs = []
    for child in stage.get("children", ()):
        yield from _stages(child, last)
        inputs.append(last[0])
    last[0] += 1
    is_chain = inputs in ([], [last[0] - 1])
    joined = "" if is_chain else f" of {', '.join(f'stage_{number}' for number in inputs)}"
    yield f"stage_{last[0]}", _call_text({key: value for key, value in stage.items() if key != "children"}) + joined


def _call_text(stage: Mapping[str, object]) -> str:
    """Return a stage or an operation as a call without its empty parameters: `Batch(batch_size=32)`."""
    name = next((str(stage[key]) for key in _STAGE_NAMES if stage.get(key)), "")
    given = {key: value for key, value in stage.items() if key not in _STAGE_NAMES and value is not None}
    parts = [f"{key}={_argument_text(value)}" for key, value in given.items() if value not in ("", [], (), {})]
    return f"{name}({', '.join(parts)})" if parts else name


def _argument_text(value: object) -> str:
    if isinstance(value, Mapping):
        return _call_text(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_argument_text, value))}]"
    return f"{value:.7g}" if isinstance(value, float) else str(value)
