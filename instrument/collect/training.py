"""Follow a training: count the steps and epochs that several trainings of a run make up, and decide what is due.

MindSpore counts the steps of each `model.train` from 1. A collector that is used again goes on counting, so that
nothing of the training before is replaced:

- A training that begins at step 0, as MindSpore's do, goes on where the one before ended.
- With `initial_epoch=n` it goes on behind epoch n: at the step at which this collector saw that epoch end, else at n
  times the steps of an epoch.
- A framework that begins at a later step counts by itself, and is believed.

A step is due when a multiple of the frequency lies between it and the step before it, so that sink mode, whose hooks
come once in many steps, misses nothing. The first step is always due; the collector takes the last one as well. Tensors
of `TensorSummary` are larger than all else and have a rule of their own: at most 20 steps unless a frequency is given.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from typing import NamedTuple

from mindspore import nn

from instrument.collect import sources
from instrument.collect.sources import CallbackParams, RunContext

log = logging.getLogger("instrument")


class Training:
    """Steps are counted as the run counts them; `last` is the last one before the training.

    `begun` is the last step that has begun; `has_values` says that what summary operators gave in it was gathered.
    `outputs` is what the network gave in the last step that ended, and `number` is MindSpore's name for that step.
    """

    def __init__(self, run_context: RunContext, last: int) -> None:
        self._context = run_context
        self.params = run_context.original_args()
        self.begun = self._ended = self._first = last
        self.number = 0
        self.has_values = False
        self.outputs = self._outputs_now
        self._has_new_outputs = False
        self._first_epoch: int | None = None
        self._epoch = 0

    def begin_step(self, step: int) -> None:
        self.begun = step
        self.has_values = False

    def begin_epoch(self, number: int) -> None:
        if self._first_epoch is None:
            self._first_epoch = number
        self._epoch = number

    @property
    def is_final_epoch(self) -> bool:
        """True in the last epoch, if their number is known."""
        epochs = sources.get(self.params, "epoch_num")
        if self._first_epoch is None or not isinstance(epochs, int):
            return False
        return self._epoch == self._first_epoch + epochs - 1

    @property
    def _outputs_now(self) -> object:
        return sources.get(self.params, "net_outputs")

    def end_step(self, step: int, number: int) -> None:
        outputs = self._outputs_now
        self._has_new_outputs = outputs is not self.outputs
        self.outputs = outputs
        self.begun = self._ended = step
        self.number = number

    @property
    def is_stopping(self) -> bool:
        """True when a callback has asked for the end of the training."""
        is_asked = getattr(self._context, "get_stop_requested", None)
        return is_asked is not None and bool(is_asked())

    @property
    def reached(self) -> int:
        """Return the last step whose network has run: a callback may evaluate before the collector hears of its end.

        A step that has begun counts, unless the network has not given anything new since.
        """
        gives_new = self._has_new_outputs or (self.outputs is None and self._ended == self._first)
        return self._ended if gives_new and self._outputs_now is self.outputs else self.begun


class StepCount:
    """Steps as the run counts them: `last` is the last one that ended, `first` the last one before the training."""

    def __init__(self) -> None:
        self.last = 0
        self.first = 0
        #: The last epoch, counted likewise.
        self.epoch = 0
        self._offset = 0
        self._epoch_offset = 0
        self._epoch_ends: dict[int, int] = {}
        self._counts_itself = False
        self._is_new = True

    def begin(self, step: int) -> None:
        """Begin a training with the number of steps that MindSpore says are done."""
        self._counts_itself = step > 0
        self._is_new = True
        if not self._counts_itself:
            self._offset = self.last
        self.last = self.first = self.of(step)

    def begin_epoch(self, number: int, steps_per_epoch: int | None) -> None:
        """Begin an epoch with the number that MindSpore gives it, from 1."""
        if self._is_new:
            self._is_new = False
            self._epoch_offset = self.epoch if number == 1 and not self._counts_itself else 0
            if number > 1 and not self._counts_itself:
                self._go_on_behind(number - 1, steps_per_epoch)
        self.epoch = number + self._epoch_offset

    def _go_on_behind(self, epoch: int, steps_per_epoch: int | None) -> None:
        if epoch in self._epoch_ends:
            self._offset = self._epoch_ends[epoch]
        elif steps_per_epoch is not None:
            self._offset = epoch * steps_per_epoch
        self.last = self.first = self._offset

    def end_epoch(self) -> None:
        self._epoch_ends[self.epoch] = self.last

    def of(self, step: int) -> int:
        """Return the number that a step of the training has in the run."""
        return step + self._offset

    @property
    def is_shifted(self) -> bool:
        """True if MindSpore numbers the steps otherwise."""
        return self._offset > 0

    def epoch_of(self, number: int) -> int:
        """Return the number that an epoch of the training has in the run."""
        return number + self._epoch_offset


class ContinuedNotice:
    """Log once that steps are not counted from 1, and once that another network's are counted behind them."""

    def __init__(self) -> None:
        self._network: weakref.ref[nn.Cell] | None = None
        self._has_logged = self._has_logged_another = False

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_network": None}  # a copy knows no network

    def look(self, count: StepCount, before: int, network: nn.Cell | None, directory: str) -> None:
        """Look at a training that begins; `before` is the last step of the one before it, 0 for none."""
        is_another = self._network is not None and self._network() is not network
        self._network = None if network is None else weakref.ref(network)
        if before and count.is_shifted and not self._has_logged:
            self._has_logged = True
            log.warning(
                "The first step of this training is recorded as step %d, as the training before it ended at step %d; "
                "MindSpore calls it step 1. This message appears once per collector.", count.first + 1, before,
            )  # fmt: skip
        if before and is_another and not self._has_logged_another:
            self._has_logged_another = True
            log.warning(
                "This training has another network than the one before it; its steps are recorded behind those of that "
                "one, under the same tags in %s. For a run of its own, give it a collector and a directory of its own.",
                directory,
            )

    def look_at_epoch(self, count: StepCount, epoch: int) -> None:
        """Look at a training that has gone on behind an epoch, by `initial_epoch`."""
        if not self._has_logged:
            self._has_logged = True
            log.warning(
                "The first step of this training is recorded as step %d, as initial_epoch is %d; MindSpore calls it "
                "step 1. This message appears once per collector.", count.first + 1, epoch,
            )  # fmt: skip


# ---------------------------------------------------------------- which step collects what

DEFAULT_TENSOR_STEPS = 20


class StepPlan(NamedTuple):
    """What a step collects: `values` is everything but the tensors of summary operators."""

    values: bool
    tensors: bool

    def __bool__(self) -> bool:
        return self.values or self.tensors


@dataclass(frozen=True)
class Schedule:
    """The schedule of one training.

    `start` is the number of steps done before its first one (not 0 when a training is resumed); `total_steps` says how
    many it will do, None where the dataset cannot tell.
    """

    collect_freq: int
    tensor_freq: int | None
    start: int
    total_steps: int | None

    @classmethod
    def of_training(cls, params: CallbackParams, collect_freq: int, tensor_freq: int | None, start: int) -> Schedule:
        """Return the schedule of a training with these callback parameters."""
        if sources.get(params, "dataset_sink_mode"):
            log.info(
                "Dataset sink mode: hooks come once in %s steps. collect_freq=%d still counts steps; a hook collects "
                "when a multiple lies between it and the one before.", sources.get(params, "sink_size", "many"),
                collect_freq,
            )  # fmt: skip
        epochs, batches = sources.get(params, "epoch_num"), sources.get(params, "batch_num")
        total = epochs * batches if isinstance(epochs, int) and isinstance(batches, int) and batches > 0 else None
        return cls(collect_freq, tensor_freq, start, total)

    def due(self, step: int, previous: int) -> StepPlan:
        """Return what `step` collects when the hook before it came at step `previous` (`start` for the first one)."""
        if previous == self.start:
            return StepPlan(True, True)
        values = _crosses(previous, step, self.collect_freq)
        freq, limit = self._tensor_rule()
        collected = 1 + previous // freq - (self.start + 1) // freq
        return StepPlan(values, _crosses(previous, step, freq) and (limit is None or collected < limit))

    def is_last(self, step: int) -> bool:
        """Return True for the last step, if its number is known."""
        return self.total_steps is not None and step - self.start == self.total_steps

    @property
    def at_the_end(self) -> StepPlan:
        """Return what the last step collects that was not due: tensors where they go with everything else."""
        freq, limit = self._tensor_rule()
        return StepPlan(True, freq == self.collect_freq and limit is None)

    def _tensor_rule(self) -> tuple[int, int | None]:
        """Return the frequency for tensors, and the number of steps after which they end."""
        if self.tensor_freq is not None:
            return self.tensor_freq, None
        if self.total_steps is None:
            return self.collect_freq, DEFAULT_TENSOR_STEPS
        if self.total_steps // self.collect_freq + 1 <= DEFAULT_TENSOR_STEPS:
            return self.collect_freq, None
        freq = max(self.total_steps // (DEFAULT_TENSOR_STEPS - 1), 1)
        return freq, DEFAULT_TENSOR_STEPS


def _crosses(previous: int, step: int, freq: int) -> bool:
    return step // freq > previous // freq
