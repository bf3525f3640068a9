"""One training of a collector while it is under way: how far it has come, and what its network gave last."""

from __future__ import annotations

from typing import Any

from instrument.collect import sources


class Training:
    """Steps are counted as the run counts them; `last` is the last one before the training.

    `begun` is the last step that has begun. `outputs` is what the network gave in the last step that ended, and
    `number` is MindSpore's name for that step.
    """

    def __init__(self, run_context: Any, last: int) -> None:
        self._context = run_context
        self.params = run_context.original_args()
        self.begun = self._ended = self._first = last
        self.number = 0
        self.outputs = self._outputs_now
        self._has_new_outputs = False

    @property
    def _outputs_now(self) -> Any:
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
        """The last step whose network has run: a callback may evaluate before or after the collector hears of its end.

        A step that has begun counts, unless the network has not given anything new since.
        """
        gives_new = self._has_new_outputs or (self.outputs is None and self._ended == self._first)
        return self._ended if gives_new and self._outputs_now is self.outputs else self.begun
