"""Checkpoints and a wish -> a landscape in the event file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from instrument import framework
from instrument.errors import InstrumentError
from instrument.landscape import compute, hessian, planes, samples, weights
from instrument.landscape.compute import Answer, Question
from instrument.landscape.directions import Floats, Layout, NoPlane
from instrument.landscape.forward import Forward
from instrument.landscape.parts import Parts, check_names
from instrument.landscape.plane import Plane
from instrument.landscape.planes import Known, Wish
from instrument.landscape.progress import Report
from instrument.landscape.surface import item_of, surface_of
from instrument.landscape.weights import BadCheckpoint, Checkpoint, Source
from instrument.values import Event, LossSurface
from instrument.write.factory import open_sink
from instrument.write.sink import Sink, Target

log = logging.getLogger("instrument")


@dataclass(frozen=True)
class Options:
    """How a landscape is computed and where its event goes."""

    callback: Callable[[], Any]
    parts: Parts
    metrics: list[str]
    samples: int
    unfold: bool
    executor: Executor | None
    report: Report | None
    output: str


@contextmanager
def opened(directory: str) -> Iterator[Sink]:
    sink = open_sink(Target(directory, device=framework.device_number()), workers=0)
    try:
        yield sink
    finally:
        sink.close()


def generate(source: Source, options: Options) -> list[LossSurface]:
    """All landscapes of a source; those that cannot be made are said."""
    create = source.create or {}
    jobs = []
    if create.get("train", True):
        jobs += [(interval, "mindspore") for interval in source.intervals]
    if create.get("result", True) and source.intervals:
        jobs.append(((max(source.intervals[-1]),), "random"))
    made: list[LossSurface] = []
    problems: list[Exception] = []
    tags: dict[str, int] = {}
    with opened(options.output) as sink:
        for interval, axes in jobs:
            tag = _tag(sorted(set(interval)), axes, tags)
            wish = planes.wish(axes, "layer", source.size, "auto", 0, None)
            wish = wish if axes == "mindspore" else _mindspores_random(wish)
            try:
                made.append(make(wish, sorted(set(interval)), source, options, sink, tag))
            except (BadCheckpoint, NoPlane) as error:
                problems.append(error)
                log.error("%s cannot be drawn: %s", tag, error)
    if problems and not made:
        raise problems[0]
    return made


def _mindspores_random(wish: Wish) -> Wish:
    return Wish(wish.axes, wish.normalize, wish.size, wish.extent, wish.seed, planes.is_mindspores, None)


def _tag(numbers: list[int], axes: str, tags: dict[str, int]) -> str:
    """MindSpore's tag, made unique: two intervals may have the same ends."""
    tag = f"landscape_{[numbers[0], numbers[-1]] if axes == 'mindspore' else numbers}"
    tags[tag] = tags.get(tag, 0) + 1
    return tag if tags[tag] == 1 else f"{tag}_{tags[tag]}"


# ---------------------------------------------------------------- one landscape


def layout_of(wish: Wish, path: Sequence[Checkpoint], parts: Parts, unit: str) -> tuple[Layout, list[str]]:
    """The parameters that move, and the names of those that do not, of the network and the checkpoint."""
    extra = check_names(parts, path[-1].tensors, path[-1].number, unit)
    names = list(parts.parameters)
    trainable = [parameter.name for parameter in parts.network.trainable_params()]
    layout = planes.layout_of(wish, path[-1], trainable, names)
    return layout, [name for name in (*names, *extra) if name not in layout.names]


def make(wish: Wish, numbers: Sequence[int], source: Source, options: Options, sink: Sink, tag: str) -> LossSurface:
    path = weights.load(source, numbers)
    layout, excluded = layout_of(wish, path, options.parts, source.unit)

    def eigenvectors() -> tuple[Floats, Floats]:
        taken = samples.take(options.parts.dataset, options.samples)
        origin = path[-1].tensors
        with Forward(options.parts, taken, {}) as forward:
            forward.choose(options.unfold, [{name: origin[name] for name in forward.parameters}])
            return hessian.eigenvectors(forward, origin, layout, wish.seed)

    plane, known, kept = planes.plane_of(wish, path, layout, eigenvectors)
    if known.metadata.get("repeated"):
        log.warning("%s: %s %s hold the same weights as a later checkpoint and are left out.", tag, source.unit,
                    weights.listed(known.metadata["repeated"]))  # fmt: skip
    return run(plane, known, kept, excluded, source, options, sink, tag)


def run(
    plane: Plane, known: Known, path: Sequence[Checkpoint], excluded: list[str], source: Source, options: Options,
    sink: Sink, tag: str,
) -> LossSurface:  # fmt: skip
    question = Question(
        tag, plane, [one.tensors for one in path[: plane.others]], options.callback, options.samples, options.metrics,
        options.unfold, options.executor, options.report,
    )  # fmt: skip
    surfaces: list[LossSurface] = []

    def write(level: int, answer: Answer) -> None:
        surface = surface_of(question, known, answer, level, excluded, source.unit, source.steps_per_epoch)
        surfaces[:] = [surface]
        sink.write(Event.of(0, time.time(), [item_of(surface)]))
        if answer.is_done.all():  # before the points are removed, of which the next call makes the surface
            _check_written(sink, tag)

    answer = compute.compute(question, options.parts, options.output, write)
    if answer.samples < options.samples:
        log.info("%s: the dataset has %d samples; %d were asked for.", tag, answer.samples, options.samples)
    return surfaces[0]


def _check_written(sink: Sink, tag: str) -> None:
    notice = sink.take_error()
    if notice is not None:
        raise InstrumentError(f"{tag} is computed, but cannot be written to {notice.path}: {notice.reason}.")
