"""How a recorder ended: told in its first file, and to TensorBoard's page of hyper-parameters."""

from __future__ import annotations

import time

from instrument.codec import lineage
from instrument.collect import beside
from instrument.values import ENDED, FAILED, FINISHED, SESSION_END, End, Event, Item
from instrument.write import resume
from instrument.write.sink import Sink

_STARTS = frozenset({"train_lineage", "custom_lineage_data"})


def end_of(error: BaseException | None) -> End:
    """Return how a recorder ends that an exception, or none, ends."""
    if error is None:
        return End(FINISHED)
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  the exception is the user's, and so is what makes a text of it
        text = ""
    return End(FAILED, f"{type(error).__name__}: {text}" if text else type(error).__name__)


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
            sink.write(Event(self._step, now, [Item(SESSION_END, "", lineage.encode_session_end(is_success, now))]))


class Ending:
    """The last event of a recorder's first file. `end` is None in a forked child, whose file it is not."""

    def __init__(self, max_file_bytes: int | None) -> None:
        self.end: End | None = End(ENDED)
        self.step = 0
        #: What it took in the file.
        self.bytes = 0
        self._max_file_bytes = max_file_bytes

    def write(self, path: str) -> None:
        """Write it, when the recorder's last event is in the file."""
        end, self.end = self.end, None
        if end is not None:
            self.bytes = resume.append_end(path, end, self.step, self._max_file_bytes)


def close(sampler: beside.Beside | None, sink: Sink, ending: Ending) -> None:
    """End the sampling, if there is any, then the sink, and say in its first file how it ended."""
    beside.end(sampler, sink.close)
    ending.write(sink.path)
