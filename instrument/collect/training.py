"""One training of a collector while it is under way: how far it has come, and what its network gave last."""

from __future__ import annotations

from typing import Any

from instrument.collect import sources


class Training:
    """Steps are counted as the run counts them; `last` is the last one before the training.

    `begun` is the last step that has begun; `has_values` says that what summary operators gave in it was gathered.
    `outputs` is what the network gave in the last step that ended, and `number` is MindSpore's name for that step.
    """

    def __init__(self, run_context: Any, last: int) -> None:
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
