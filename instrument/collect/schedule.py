"""Which step collects what; pure.

A step is due when a multiple of the frequency lies between it and the step before it, so that sink mode, whose hooks
come once in many steps, misses nothing. The first step is always due; the collector takes the last one as well. Tensors
of `TensorSummary` are larger than all else and have a rule of their own: at most 20 steps unless a frequency is given.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

DEFAULT_TENSOR_STEPS = 20


class Due(NamedTuple):
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

    def due(self, step: int, previous: int) -> Due:
        """What `step` collects when the hook before it came at step `previous` (`start` for the first one)."""
        if previous == self.start:
            return Due(True, True)
        values = _crosses(previous, step, self.collect_freq)
        freq, limit = self._tensor_rule()
        collected = 1 + previous // freq - (self.start + 1) // freq
        return Due(values, _crosses(previous, step, freq) and (limit is None or collected < limit))

    def is_last(self, step: int) -> bool:
        """Return True for the last step, if its number is known."""
        return self.total_steps is not None and step - self.start == self.total_steps

    @property
    def at_the_end(self) -> Due:
        """What the last step collects that was not due: tensors where they go with everything else."""
        freq, limit = self._tensor_rule()
        return Due(True, freq == self.collect_freq and limit is None)

    def _tensor_rule(self) -> tuple[int, int | None]:
        """The frequency for tensors, and at how many steps they end."""
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
