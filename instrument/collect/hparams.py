"""Tell TensorBoard's page of hyper-parameters how a run with hyper-parameters ended."""

from __future__ import annotations

import time

from instrument.codec import lineage
from instrument.values import SESSION_END, Event, MessageItem
from instrument.write.sink import Sink

_STARTS = frozenset({"train_lineage", "custom_lineage_data"})


class HparamsSession:
    """Note whether a recorder writes hyper-parameters, and end their session."""

    def __init__(self) -> None:
        self._step = 0
        self._has_begun = False

    def note(self, event: Event) -> None:
        """Look at an event that is written."""
        self._step = event.step
        self._has_begun = self._has_begun or any(item.kind in _STARTS for item in event.items)

    def end(self, sink: Sink, is_success: bool) -> None:
        """Write the session's end, once, if there were hyper-parameters."""
        if self._has_begun:
            self._has_begun = False
            now = time.time()
            item = MessageItem(SESSION_END, "", lineage.encode_session_end(is_success, now))
            sink.write(Event(self._step, now, [item]))
