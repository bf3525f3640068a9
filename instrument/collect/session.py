"""A run for TensorBoard's page of hyper-parameters: one that has some says at its end how that was."""

from __future__ import annotations

import time

from instrument.codec import tensorboard_lineage
from instrument.values import SESSION_END, Event, Item

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

    def end(self, is_success: bool) -> Event | None:
        """What to write at the end; None for a run without hyper-parameters."""
        if not self._has_begun:
            return None
        self._has_begun = False
        now = time.time()
        return Event(self._step, now, [Item(SESSION_END, "", tensorboard_lineage.end(is_success, now))])
