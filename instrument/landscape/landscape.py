"""`SummaryLandscape`: draw the loss around the path that a training took.

The problem: a network has millions of weights, a picture two axes, and each of its points is a pass over thousands of
samples. So the axes have to be those along which the training moved, points have to be cheap, and hours of computing
must survive a killed process. Values must not depend on who computed them.

The strategy, in the order of a computation:

- `weights` loads the checkpoints that the collector kept, or that the user gives; `request` checks the options and
  makes the plane: two directions (`directions`, `hessian`) and a grid of points (`plane`).
- `model_parts` takes the user's network and dataset apart, and takes the samples of all points once. `forward` puts
  weights into the network and computes the loss, in the quickest form that gives the same losses: compiled, all samples
  in one batch, convolutions as matrix products (`im2col`). The plain form, MindSpore's own, is the reference for
  the others and the fallback if they fail; a point of LeNet-5 then takes twenty times as long. This code evaluates the
  points of all axes, MindSpore's included.
- `compute` goes from coarse grids to fine ones. Each finished point is appended to a file (`checkpoint_store`), so an
  interrupted computation goes on where it ended, with the same values to the last bit.
- `dispatch` evaluates points here or hands them to an executor: the user's, or worker processes that it starts
  (`workers`) and sends the pickled function. Points of workers that die are computed again.
- `runner` writes a surface whenever a level of the grid is whole, so there is a picture early.

Rejected: a pool of `multiprocessing`, as MindSpore's generator has. Its fork hangs once MindSpore has run, and its
spawn runs the user's main module again.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext

from instrument import framework
from instrument.checks import check_bool, check_directory, check_int
from instrument.collect.options import LandscapeOptions
from instrument.landscape import model_parts, request, runner, weights
from instrument.landscape.compute import Options, Report
from instrument.landscape.dispatch import check_executor, pickled
from instrument.landscape.model_parts import Callback
from instrument.landscape.weights import Source, Tensors
from instrument.landscape.workers import Device, WorkerPool
from instrument.values import LossSurface

log = logging.getLogger("instrument")

#: MindSpore's limits of `device_ids`.
_DEVICES = range(8)
_TARGETS = ("CPU", "GPU", "Ascend")


class SummaryLandscape:
    """The loss around the path that a training took, from the weights that its `SummaryCollector` kept.

        SummaryLandscape("./run").compute(callback_fn)
        read("./run").landscapes

    Args:
        summary_dir: the directory of a run, with its `ckpt_dir`; ours or MindSpore's.

    `callback_fn` is a function without arguments that gives `(model, network, dataset, metrics)`: a
    `mindspore.train.Model`, the network inside it, a batched dataset, and metrics by name (None for none). The loss is
    the model's, averaged over the samples, in evaluation mode. Its optimiser, if it has one, is never run, and the
    network has its own parameters and mode again afterwards, also after an error.

    A landscape that was interrupted goes on where it ended when it is asked for again; until it is finished, what it
    needs for that lies in `landscape_unfinished` of the output directory, which may be removed. Ever finer grids are
    written as they are finished, each replacing the one before, so that `read(run).landscapes` shows what there is.
    """

    def __init__(self, summary_dir: str | os.PathLike[str]) -> None:
        self._directory = check_directory("summary_dir", summary_dir)

    def clean_ckpt(self) -> None:
        """Remove the checkpoints of the run; landscapes stay."""
        shutil.rmtree(os.path.join(self._directory, weights.CKPT_DIR), ignore_errors=True)

    # ------------------------------------------------------------------ MindSpore's call

    def gen_landscapes_with_multi_process(
        self,
        callback_fn: Callback,
        collect_landscape: Mapping[str, object] | None = None,
        device_ids: Sequence[int] | None = None,
        output: str | os.PathLike[str] | None = None,
        device_target: str | None = None,
    ) -> list[LossSurface]:
        """Compute the landscapes that the collector was asked for, with MindSpore's axes and meanings.

        Metrics of `callback_fn` beside the loss are computed on the same points. An interval that cannot be drawn is
        said and passed over; the others are made.

        Args:
            collect_landscape: options that replace those of the collector, by its names.
            device_ids: one worker process for each, which uses that device of `device_target`. None, or the one that
                this process uses, computes in this process. On the CPU only their number counts.
            output: the directory for the event file; the run's own by default.
            device_target: "CPU", "GPU" or "Ascend"; by default that of this process's context. Another one is used by
                worker processes, since MindSpore cannot change the target of a process that has run.

        Returns:
            One surface for each interval, and that of the result.

        Raises:
            TypeError, ValueError: an argument is wrong, or no landscape at all can be made.
            FileNotFoundError: there are no checkpoints.
        """
        source = _changed(weights.find(self._directory), collect_landscape)
        devices = _elsewhere(_check_devices(device_ids), _check_target(device_target))
        directory = self._output(output)
        parts = model_parts.prepare(callback_fn)
        metrics = model_parts.checked_metrics(parts, [*parts.metrics] if parts.can_measure else [])
        if devices:
            pickled(callback_fn)
        with _worker_pool(devices) as executor:
            options = Options(callback_fn, parts, metrics, source.samples, True, executor, None, directory)
            return runner.run_all(source, options)

    # ------------------------------------------------------------------ ours

    def compute(
        self,
        callback_fn: Callback,
        *,
        axes: object = "anchored",
        normalize: str | None = request.AUTO,
        size: int = 40,
        extent: object = "auto",
        seed: int = 0,
        metrics: Iterable[str] | None = None,
        executor: Executor | None = None,
        workers: int = 0,
        checkpoints: Mapping[int, str | os.PathLike[str] | Tensors] | None = None,
        unit: str | None = None,
        interval: Sequence[int] | None = None,
        num_samples: int | None = None,
        parameters: str | Sequence[str] | None = None,
        unfold: bool = True,
        output: str | os.PathLike[str] | None = None,
        tag: str | None = None,
        progress: Report | None = None,
    ) -> LossSurface:
        """Compute the losses on a plane through the last checkpoint.

        Args:
            axes: `"anchored"`, `"centred"` or `"mindspore"`: the two leading principal axes of the path, see
                `directions.principal_axes`; `"random"`; `"hessian"`, the two directions in which the loss curves most;
                or two directions, each a flat array or a dictionary of arrays by parameter name.
            normalize: `"filter"`, `"layer"` (see `directions.normalized`) or None: the axes keep their length. `"auto"`
                is "filter" for random axes, "layer" for those of MindSpore, None for all others.
            size: points along an axis, 3 to 256. The origin is evaluated beside them, as is each checkpoint.
            extent: how far the grid goes, in the units of the axes: x from, to, y from, to; or one number, as far to
                each side. `"auto"` is the path with a fifth of its width around it; without a path it is 1.
            seed: of random axes.
            metrics: names of metrics that `callback_fn` gives, to be computed from the same pass.
            executor: any `concurrent.futures.Executor`; it must see the output directory.
            workers: the number of worker processes; 0 computes in this one.
            checkpoints: a dictionary from step or epoch to a `.ckpt` or `.npz` file, or to arrays by name; by default
                those that the collector kept.
            unit: "step" or "epoch", what the numbers of `checkpoints` count; "step" by default. What the collector
                kept says it itself.
            interval: the steps or epochs to take; by default all.
            num_samples: the number of the dataset's first samples; by default the collector's option, or 2048.
            parameters: those that are moved, a regular expression or a list of names; by default all that are trained
                (for "mindspore" those with `weight` or `bias` in their name). All others stay as at the origin.
            unfold: on the CPU, compute convolutions as matrix products, where that gives the same losses.
            output: the directory for the event file; the run's own by default.
            tag: under which the landscape is recorded.
            progress: called with points done, points in all, and seconds left (None before there is a rate).

        Raises:
            TypeError, ValueError: an argument is wrong; the checkpoints cannot be read, do not fit, or span no plane.
            FileNotFoundError: there are no checkpoints.
            EvaluationError: the network cannot be evaluated.
        """
        wanted = request.checked(axes, normalize, size, extent, seed, parameters)
        _check_text(tag, "tag")
        source = self._source(checkpoints, unit, num_samples)
        numbers = weights.chosen_numbers(source, interval)
        with self._options(callback_fn, metrics, executor, workers, source, unfold, output, progress) as options:
            if not wanted.has_path:
                numbers = numbers[-1:]
            name = tag or f"landscape_{[numbers[0], numbers[-1]] if wanted.has_path else numbers}_{wanted.axes}"
            with runner.opened(options.output) as sink:
                return runner.run(wanted, numbers, source, options, sink, name)

    def compute_line(
        self,
        callback_fn: Callback,
        first: int | None = None,
        last: int | None = None,
        *,
        size: int = 41,
        extent: tuple[float, float] = (-0.5, 1.5),
        metrics: Iterable[str] | None = None,
        executor: Executor | None = None,
        workers: int = 0,
        checkpoints: Mapping[int, str | os.PathLike[str] | Tensors] | None = None,
        unit: str | None = None,
        num_samples: int | None = None,
        parameters: str | Sequence[str] | None = None,
        unfold: bool = True,
        output: str | os.PathLike[str] | None = None,
        tag: str | None = None,
        progress: Report | None = None,
    ) -> LossSurface:
        """Compute the losses along the line (1 - x) first + x last between two checkpoints, and beyond both.

        Args:
            first, last: their steps or epochs; by default the first and the last that there are.
            extent: x from, to.

        All else is as for `compute`; the surface has one row.
        """
        wanted = request.checked("anchored", None, size, "auto", 0, parameters)
        ends = request.check_ends(extent)
        _check_text(tag, "tag")
        source = self._source(checkpoints, unit, num_samples)
        every = weights.chosen_numbers(source, None)
        chosen = [every[0] if first is None else first, every[-1] if last is None else last]
        weights.chosen_numbers(source, chosen)
        with self._options(callback_fn, metrics, executor, workers, source, unfold, output, progress) as options:
            loaded = {checkpoint.number: checkpoint for checkpoint in weights.load(source, chosen)}
            path = [loaded[number] for number in chosen]
            layout, excluded = runner.layout_of(wanted, path, options.parts, source.unit)
            plane, info = request.line_of(path[0], path[1], layout, size, ends)
            with runner.opened(options.output) as sink:
                return runner.run_plane(plane, info, path, excluded, source, options, sink, tag or f"line_{chosen}")

    # ------------------------------------------------------------------ checks

    def _output(self, output: object) -> str:
        return self._directory if output is None else check_directory("output", output)

    def _source(self, checkpoints: object, unit: object, num_samples: object) -> Source:
        num_samples = None if num_samples is None else check_int("num_samples", num_samples, 1)
        if unit is not None and unit not in weights.UNITS:
            raise ValueError(f"unit is {unit!r}; expected one of {list(weights.UNITS)}, or None.")
        if unit is not None and checkpoints is None:
            raise ValueError("unit is for checkpoints=; those that the collector kept have their own. Leave it out.")
        source = weights.find(self._directory) if checkpoints is None else Source(weights.given(checkpoints))
        return source.changed(samples=num_samples, unit=unit)

    @contextmanager
    def _options(
        self, callback: Callback, metrics: object, executor: Executor | None, workers: object,
        source: Source, unfold: bool, output: object,
        progress: Report | None,
    ) -> Iterator[Options]:  # fmt: skip
        check_executor(executor)
        workers = check_int("workers", workers, 0)
        if workers and executor is not None:
            raise ValueError("Give either executor or workers, not both.")
        check_bool("unfold", unfold)
        if progress is not None and not callable(progress):
            raise TypeError(
                f"progress is a {type(progress).__name__}; expected a function of three arguments, or None."
            )
        directory = self._output(output)
        parts = model_parts.prepare(callback)
        names = model_parts.checked_metrics(parts, metrics)
        if workers or executor is not None:
            pickled(callback)
        with _worker_pool([None] * workers) as pool:
            yield Options(callback, parts, names, source.samples, unfold, executor or pool, progress, directory)


def _worker_pool(devices: Sequence[Device | None]) -> AbstractContextManager[Executor | None]:
    """Return an executor with a process for each device, or None if there are no devices."""
    return WorkerPool(devices) if devices else nullcontext()


def _check_text(value: object, name: str) -> None:
    if value is not None and (not isinstance(value, str) or not value):
        raise TypeError(f"{name} is {value!r}; expected a text, or None.")


# ---------------------------------------------------------------- MindSpore's options


def _changed(source: Source, given: Mapping[str, object] | None) -> Source:
    """Return the source with what `collect_landscape` replaces; the checks are those of the collector."""
    if given is None:
        return source
    if not isinstance(given, Mapping):
        raise TypeError(f"collect_landscape is a {type(given).__name__}; expected a dictionary or None.")
    options = LandscapeOptions.from_dict({"intervals": [[1, 2, 3]], **given})
    return source.changed(
        intervals=options.intervals if "intervals" in given else None,
        size=options.landscape_size if "landscape_size" in given else None,
        samples=options.num_samples if "num_samples" in given else None,
        create=options.create_landscape if "create_landscape" in given else None,
    )


def _check_devices(device_ids: object) -> list[int]:
    if device_ids is None:
        return []
    if not isinstance(device_ids, (list, tuple)) or not all(type(number) is int for number in device_ids):
        raise TypeError(f"device_ids is {device_ids!r}; expected a list of int, or None.")
    if not all(number in _DEVICES for number in device_ids) or len(set(device_ids)) < len(device_ids):
        raise ValueError(f"device_ids is {list(device_ids)}; expected different numbers from 0 to 7.")
    return list(device_ids)


def _check_target(target: object) -> str | None:
    if target is not None and target not in _TARGETS:
        raise ValueError(f"device_target is {target!r}; expected one of {list(_TARGETS)}, or None.")
    return str(target) if target is not None else None


def _elsewhere(numbers: Sequence[int], target: str | None) -> list[Device]:
    """Return the devices for worker processes; none if this process computes on the right one itself."""
    own = framework.device_target()
    if target not in (None, own):
        return [(str(target), number) for number in numbers or [0]]
    if len(numbers) == 1 and (own == "CPU" or numbers[0] == framework.device_id()):
        return []
    return [(own, number) for number in numbers]
