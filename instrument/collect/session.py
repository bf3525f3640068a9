"""A run for TensorBoard's page of hyper-parameters: one that has some says at its end how that was."""

from __future__ import annotations

import time

from instrument.codec import tensorboard_lineage
from instrument.values import SESSION_END, Event, Item
from instrument.write.sink import Sink

_STARTS = frozenset({"train_lineage", "custom_lineage_data"})


class Session:
    """Knows whether a recorder has written hyper-parameters."""

    def __init__(self) -> None:
        self._step = 0
        self._has_begun = False

    def note(self, event: Event) -> None:
        """An event that is written."""
        self._step = event.step
        self._has_begun = self._has_begun or any(item.kind in _STARTS for item in event.items)

    def end(self, sink: Sink, is_success: bool) -> None:
        """Write how it ended, once, and only for a run with hyper-parameters."""
        if self._has_begun:
            self._has_begun = False
            now = time.time()
            sink.write(Event(self._step, now, [Item(SESSION_END, "", tensorboard_lineage.end(is_success, now))]))
