"""Keep the weights that a loss landscape will need: checkpoints at the given steps or epochs, and their metadata.

Files and keys are MindSpore's: `ckpt_dir/{Network}_{number}_{unit}.ckpt` and `ckpt_dir/train_metadata.json`. Paths are
relative to `ckpt_dir`, so that a run can be moved. Each file is written under a temporary name and renamed when it is
whole. Training waits for a copy of the weights only; a thread, which is there while there is something to write, does
the rest, and keeps the metadata up to date: a training that is killed leaves what can be drawn.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import threading
from collections import deque
from dataclasses import dataclass

import mindspore
import numpy as np
from mindspore import nn
from numpy.typing import NDArray

from instrument import framework
from instrument.collect import sources
from instrument.collect.collectors import Collectors
from instrument.collect.convert import to_array
from instrument.collect.options import LandscapeOptions, substitutes
from instrument.collect.sources import CallbackParams

log = logging.getLogger("instrument")

METADATA = "train_metadata.json"
#: Copies of weights that wait for the disk; beyond this, training waits.
_MOST_WAITING_BYTES = 1 << 30
#: Checkpoints that take more disk space, or a larger share of what is free, are a warning.
_MUCH_BYTES, _MUCH_OF_FREE = 1 << 30, 0.1


@dataclass(frozen=True)
class _Job:
    """A copy of all parameters: name, array, and the type in which it is saved."""

    number: int
    path: str
    parameters: list[tuple[str, NDArray[np.generic], mindspore.dtype]]

    @property
    def size_bytes(self) -> int:
        return sum(array.nbytes for _, array, _ in self.parameters)


#: How the names of our checkpoints end.
_WEIGHTS = ("_step.ckpt", "_epoch.ckpt")


def _is_ours(name: str) -> bool:
    return name == METADATA or name.endswith((*_WEIGHTS, ".part.ckpt", ".json.part"))


class Checkpoints:
    """Keep a network's weights during one training."""

    def __init__(self, directory: str, options: LandscapeOptions) -> None:
        self._directory = os.path.realpath(directory)
        self._options = options
        self._wanted = {number for interval in options.intervals for number in interval}
        self._taken: set[int] = set()
        self._saved: dict[int, str] = {}
        self._before: int | None = None
        self._unreachable: set[int] = set()
        self._has_logged_size = False
        self._steps_per_epoch = 0
        self._jobs: deque[_Job] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    @property
    def unit(self) -> str:
        return self._options.unit

    def begin(self, network: nn.Cell | None = None, step: int = 0, every: int = 1, goes_on: bool = False) -> None:
        """Make the directory and take away what an earlier training left: a landscape of two runs would be wrong.

        With a network the log says how much room its weights will take; without one the first `save` logs it.

        Args:
            step: that training goes on from.
            every: steps from one step hook to the next; more than one in dataset sink mode.
            goes_on: this is a further training of the same run, whose checkpoints stay.

        Raises:
            OSError: the directory cannot be written.
        """
        os.makedirs(self._directory, exist_ok=True)
        old = [] if goes_on else [name for name in os.listdir(self._directory) if _is_ours(name)]
        for name in old:
            os.remove(os.path.join(self._directory, name))
        weights = sum(name.endswith(_WEIGHTS) for name in old)
        if weights:
            log.warning(
                "%d checkpoints that an earlier training kept for its landscape in %s are removed: a landscape is of "
                "one training. Give each training a directory of its own.", weights, self._directory,
            )  # fmt: skip
        if self.unit == "step":
            self._warn_of_unreachable(step, every)
        if network is not None:
            self._log_size(sources.innermost_network(network))

    def _warn_of_unreachable(self, step: int, every: int) -> None:
        self._unreachable = {number for number in self._wanted if number > step and (number - step) % every}
        if self._unreachable:
            log.warning(
                "The weights at steps %s cannot be kept: in dataset sink mode hooks come every %d steps only. Take "
                "dataset_sink_mode=False, the unit 'epoch', or multiples of %d.", sorted(self._unreachable), every,
                every,
            )  # fmt: skip

    def save(self, number: int, network: nn.Cell) -> None:
        """Keep the weights after step or epoch `number`, if they are wanted.

        Raises:
            Exception: whatever kept an earlier one from being written.
        """
        passed = sorted(self._passed(number))
        if passed:
            log.warning(
                "No weights are kept at %s %s: hooks come at %d and next at %d. In dataset sink mode they come at the "
                "end of an epoch only; take dataset_sink_mode=False, the unit 'epoch', or such steps.", self.unit,
                passed, self._before, number,
            )  # fmt: skip
        is_first, self._before = self._before is None, number
        if is_first and not self._has_logged_size:
            self._log_size(sources.innermost_network(network))
        if number not in self._wanted or number in self._taken:
            return
        backbone = sources.innermost_network(network)
        self._taken.add(number)
        path = os.path.join(self._directory, f"{type(backbone).__name__}_{number}_{self.unit}.ckpt")
        self._write(_Job(number, path, _copies(backbone)))

    def _passed(self, number: int) -> set[int]:
        if self._before is None:
            return set()
        return {wanted for wanted in self._wanted - self._unreachable if self._before < wanted < number}

    def _log_size(self, backbone: nn.Cell) -> None:
        """Log how much room the weights will take, before the first is written; as a warning if it is much."""
        self._has_logged_size = True
        size_bytes = sum(int(parameter.nbytes) for parameter in backbone.get_parameters())
        needed, free = size_bytes * len(self._wanted), shutil.disk_usage(self._directory).free
        is_much = needed > _MUCH_BYTES or needed > _MUCH_OF_FREE * free
        log.log(
            logging.WARNING if is_much else logging.INFO,
            "For the landscape, %d checkpoints of %s are kept in %s: %s; %s are free there%s.", len(self._wanted),
            _size(size_bytes), self._directory, _size(needed), _size(free), ", which is not enough" * (needed > free),
        )  # fmt: skip

    # ------------------------------------------------------------------ the thread that writes

    def _write(self, job: _Job) -> None:
        self._raise_error()
        with self._lock:
            waiting = sum(queued.size_bytes for queued in self._jobs)
            self._jobs.append(job)
            thread = self._thread
            if thread is None:
                thread = self._thread = threading.Thread(target=self._write_all, name="instrument-checkpoints")
                thread.start()
        if waiting and waiting + job.size_bytes > _MOST_WAITING_BYTES:
            thread.join()

    def _write_all(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._thread = None
                    return
                job = self._jobs.popleft()
            try:
                self._write_one(job)
            except Exception as error:  # noqa: BLE001  the edge: the next call of the training thread raises it
                self._error = self._error or error

    def _write_one(self, job: _Job) -> None:
        partial = job.path.removesuffix(".ckpt") + ".part.ckpt"
        tensors = [{"name": name, "data": mindspore.Tensor(array, dtype)} for name, array, dtype in job.parameters]
        mindspore.save_checkpoint(tensors, partial)
        # MindSpore makes it readable for its owner alone; who may read the run may read its weights.
        os.chmod(partial, stat.S_IMODE(os.stat(self._directory).st_mode) & 0o666)
        os.replace(partial, job.path)
        self._saved[job.number] = os.path.basename(job.path)
        self._write_metadata()

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    # ------------------------------------------------------------------ the end

    def end(self, steps_per_epoch: int) -> None:
        """Return when all is written, and say which numbers training never reached.

        Raises:
            Exception: whatever kept weights from being written.
        """
        thread = self._thread
        if thread is not None:
            thread.join()
        self._steps_per_epoch = steps_per_epoch
        self._write_metadata()
        missing = sorted(self._wanted - self._taken)
        if missing:
            log.warning(
                "No weights were kept for the landscape at %s %s: training did not stop there. Their intervals cannot "
                "be drawn.", self.unit, missing,
            )  # fmt: skip
        self._raise_error()

    def _write_metadata(self) -> None:
        options = self._options
        metadata = {
            "epoch_group": {str(index): list(interval) for index, interval in enumerate(options.intervals)},
            "model_params_file_map": {str(number): path for number, path in sorted(self._saved.items())},
            "step_per_epoch": self._steps_per_epoch,
            "unit": options.unit,
            "num_samples": options.num_samples,
            "landscape_size": options.landscape_size,
            "create_landscape": dict(options.create_landscape),
        }
        path = os.path.join(self._directory, METADATA)
        partial = path + ".part"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(metadata, file)
        os.replace(partial, path)


def _copies(backbone: nn.Cell) -> list[tuple[str, NDArray[np.generic], mindspore.dtype]]:
    """Copy all parameters, which the optimiser changes in place."""
    return [
        (parameter.name, to_array(parameter, parameter.name)[0].copy(), parameter.dtype)
        for parameter in backbone.get_parameters()
    ]


def _size(count: int) -> str:
    """Return `"512 B"`, `"1.5 MB"`; decimal."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{count} B"


class LandscapeWeights:
    """Keep weights while a training is under way, on the first rank, if `options` ask for them."""

    def __init__(self, directory: str, options: LandscapeOptions | None) -> None:
        self._directory = os.path.join(directory, "ckpt_dir")
        self._options = options
        self._checkpoints: Checkpoints | None = None
        self._is_open = False

    def begin(self, params: CallbackParams, step: int, goes_on: bool, collectors: Collectors) -> None:
        """Begin a training behind a step; one that goes on with the last one of this collector leaves its weights."""
        if self._options is None or framework.rank() or substitutes:
            return
        goes_on = goes_on and self._checkpoints is not None
        if self._checkpoints is None or not goes_on:
            self._checkpoints = Checkpoints(self._directory, self._options)
        self._is_open = True
        network, every = sources.get(params, "train_network"), sources.steps_between_hooks(params)
        collectors.attempt("landscape", self._checkpoints.begin, network, step, every, goes_on)

    def save(self, unit: str, number: int, params: CallbackParams, collectors: Collectors) -> None:
        """Keep the weights behind a step or an epoch, if those of that number are wanted."""
        checkpoints = self._checkpoints
        if checkpoints is not None and self._is_open and checkpoints.unit == unit:
            collectors.attempt("landscape", checkpoints.save, number, params.train_network)

    def end(self, params: CallbackParams, collectors: Collectors) -> None:
        """Return when all weights of a training that has come to its end are written."""
        if self._checkpoints is not None and self._is_open:
            collectors.attempt("landscape", self._checkpoints.end, int(sources.get(params, "batch_num") or 0))

    def close(self) -> None:
        self._is_open = False
