"""Run requests: checkpoints -> plane -> losses -> `LossSurface`, written as an event whenever a level is whole.

The metadata of a surface, beside `decomposition`, `unit` and `step_per_epoch`:

- `axes`, `normalize`, `seed`; `number`, the step or epoch at the origin; `repeated`, checkpoints that were left out as
  they are the same point as a later one.
- `parameters` that take part and `excluded` ones that stay; of those that take part, `frozen` ones that are equal in
  all checkpoints (their direction is zero for the axes "anchored" and "centred", as in MindSpore for "mindspore", as
  given for the user's own), and `unmoved` ones, not among the frozen, whose direction is zero.
- `direction_cosine` of the angle between the axes; `singular_values` or `eigenvalues`.
- `samples` used and `samples_wanted`; `mode` of the network; `unfold`, whether convolutions were matrix products, and
  `unfold_difference`, the largest relative difference of the loss that this made where it was tried.
- `points` of the whole grid, `points_done`, `not_finite` of those; `complete`; `resumed` points of an earlier process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from instrument import framework
from instrument.codec import landscape as codec
from instrument.errors import InstrumentError
from instrument.landscape import hessian, request, weights
from instrument.landscape.compute import Job, Options, Result, compute
from instrument.landscape.directions import Floats, Layout, NoPlane
from instrument.landscape.forward import Forward
from instrument.landscape.model_parts import Parts, check_names, take_samples
from instrument.landscape.plane import Plane
from instrument.landscape.request import PlaneInfo, Request
from instrument.landscape.weights import BadCheckpoint, Checkpoint, Source
from instrument.values import Event, LossSurface, MessageItem
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target

log = logging.getLogger("instrument")


@contextmanager
def opened(directory: str) -> Iterator[Sink]:
    """Open the sink that landscapes are written to."""
    sink = open_sink(Target(directory, device=framework.device_number()), workers=0)
    try:
        yield sink
    finally:
        sink.close()


def run_all(source: Source, options: Options) -> list[LossSurface]:
    """Make the landscapes that the collector was asked for; log those that cannot be made.

    Raises:
        BadCheckpoint, NoPlane: none can be made.
    """
    create = source.create or {}
    jobs = []
    if create.get("train", True):
        jobs += [(interval, "mindspore") for interval in source.intervals]
    if create.get("result", True) and source.intervals:
        jobs.append(((max(source.intervals[-1]),), "random"))
    surfaces: list[LossSurface] = []
    problems: list[Exception] = []
    tags: dict[str, int] = {}
    with opened(options.output) as sink:
        for interval, axes in jobs:
            numbers = sorted(set(interval))
            tag = _unique_tag(numbers, axes, tags)
            wanted = request.checked(axes, "layer", source.size, "auto", 0, None)
            if axes != "mindspore":
                wanted = replace(wanted, pattern=request.is_mindspores)
            try:
                surfaces.append(run(wanted, numbers, source, options, sink, tag))
            except (BadCheckpoint, NoPlane) as error:
                problems.append(error)
                log.error("%s cannot be drawn: %s", tag, error)
    if problems and not surfaces:
        raise problems[0]
    return surfaces


def _unique_tag(numbers: list[int], axes: str, tags: dict[str, int]) -> str:
    """Return MindSpore's tag, with a number where two intervals have the same ends."""
    tag = f"landscape_{[numbers[0], numbers[-1]] if axes == 'mindspore' else numbers}"
    tags[tag] = tags.get(tag, 0) + 1
    return tag if tags[tag] == 1 else f"{tag}_{tags[tag]}"


# ---------------------------------------------------------------- one landscape


def run(wanted: Request, numbers: Sequence[int], source: Source, options: Options, sink: Sink, tag: str) -> LossSurface:
    """Make the landscape of a request from the checkpoints with these numbers, and write it."""
    path = weights.load(source, numbers)
    layout, excluded = layout_of(wanted, path, options.parts, source.unit)

    def eigenvectors() -> tuple[Floats, Floats]:
        taken = take_samples(options.parts.dataset, options.samples)
        origin = path[-1].tensors
        with Forward(options.parts, taken, {}) as forward:
            forward.choose(options.unfold, [{name: origin[name] for name in forward.parameters}])
            return hessian.eigenvectors(forward, origin, layout, wanted.seed)

    plane, info, kept = request.plane_of(wanted, path, layout, eigenvectors)
    if info.repeated:
        log.warning("%s: %s %s hold the same weights as a later checkpoint and are left out.", tag, source.unit,
                    weights.listed(info.repeated))  # fmt: skip
    return run_plane(plane, info, kept, excluded, source, options, sink, tag)


def layout_of(wanted: Request, path: Sequence[Checkpoint], parts: Parts, unit: str) -> tuple[Layout, list[str]]:
    """Return the parameters that move, and the names of those of network and checkpoint that do not."""
    extra = check_names(parts, path[-1].tensors, path[-1].number, unit)
    names = list(parts.parameters)
    trainable = [parameter.name for parameter in parts.network.trainable_params()]
    layout = request.layout_of(wanted, path[-1], trainable, names)
    return layout, [name for name in (*names, *extra) if name not in layout.names]


def run_plane(
    plane: Plane, info: PlaneInfo, path: Sequence[Checkpoint], excluded: list[str], source: Source, options: Options,
    sink: Sink, tag: str,
) -> LossSurface:  # fmt: skip
    """Compute a plane and write its surface each time that a level of the grid is whole; return the last one."""
    job = Job(tag, plane, [checkpoint.tensors for checkpoint in path[: plane.others]], options)
    surfaces: list[LossSurface] = []

    def write(level: int, result: Result) -> None:
        surface = _surface(job, info, result, level, excluded, source)
        surfaces[:] = [surface]
        sink.write(Event.of(0, time.time(), [MessageItem("landscape", tag, codec.from_surface(surface))]))
        if result.is_done.all():  # before the points are removed, of which the next call makes the surface
            _check_written(sink, tag)

    result = compute(job, write)
    if result.samples < options.samples:
        log.info("%s: the dataset has %d samples; %d were asked for.", tag, result.samples, options.samples)
    return surfaces[0]


def _check_written(sink: Sink, tag: str) -> None:
    diagnostic = sink.take_error()
    if diagnostic is not None:
        raise InstrumentError(f"{tag} is computed, but cannot be written to {diagnostic.path}: {diagnostic.reason}.")


def _surface(job: Job, info: PlaneInfo, result: Result, level: int, excluded: list[str], source: Source) -> LossSurface:
    """Return the landscape with the points of a level of the grid, and no others."""
    plane = job.plane
    rows, columns = plane.grid.levels()[level]
    index = rows[:, None] * len(plane.grid.x) + columns
    grids = result.values[index]
    path_losses, true_losses = _path_losses(plane, result)
    metadata = {
        **info.metadata, "unit": source.unit, "step_per_epoch": source.steps_per_epoch,
        "parameters": list(plane.layout.names), "excluded": excluded, "samples": result.samples,
        "samples_wanted": job.options.samples, "mode": "evaluation", "unfold": result.form.unfold,
        "unfold_difference": result.difference if result.form.unfold else 0.0, "points": plane.origin_point,
        "points_done": index.size, "complete": index.size == plane.origin_point,
        "not_finite": int((~np.isfinite(grids[..., 0])).sum()), "resumed": result.resumed,
    }  # fmt: skip
    shift = np.array([info.shift, 0.0])
    return LossSurface(
        job.tag, plane.grid.x[columns] + info.shift, plane.grid.y[rows], grids[..., 0],
        np.array(info.numbers, np.int64), plane.path + shift, path_losses, true_losses, info.unexplained,
        info.explained, np.append(shift, result.values[plane.origin_point, 0]),
        {name: grids[..., 1 + i] for i, name in enumerate(result.metrics)}, metadata,
    )  # fmt: skip


def _path_losses(plane: Plane, result: Result) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the losses (k,) at the projected places of the path, and those of the checkpoints themselves."""
    if not len(plane.path):
        return np.empty(0), np.empty(0)
    losses, last = result.values[:, 0], result.values[plane.origin_point, 0]
    return np.append(losses[plane.projected], last), np.append(losses[plane.true], last)
