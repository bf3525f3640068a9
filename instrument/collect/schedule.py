"""Decide which step collects what.

A step is due when a multiple of the frequency lies between it and the step before it, so that sink mode, whose hooks
come once in many steps, misses nothing. The first step is always due; the collector takes the last one as well. Tensors
of `TensorSummary` are larger than all else and have a rule of their own: at most 20 steps unless a frequency is given.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, NamedTuple

from instrument.collect import sources

log = logging.getLogger("instrument")

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
    def of_training(cls, params: Any, collect_freq: int, tensor_freq: int | None, start: int) -> Schedule:
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
