"""What a recorder says of things that it cannot record, or not as they are given."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from instrument.codec import event as event_codec
from instrument.errors import RecordingError
from instrument.ringfile.commit import Diagnostic
from instrument.values import Item
from instrument.write.limits import item_bound_bytes

log = logging.getLogger("instrument")

#: Tags that a warning names.
_MOST_NAMED = 5
_WHAT_HAPPENED = {
    "gone": "What was recorded before step {} is lost",
    "stalled": "Step {} and what follows cannot be written at the moment",
    "kept": "Step {} is not in its file yet",
    "export": "A tensor of step {} cannot be exported",
    "sync": "What was recorded may not survive a power failure",
}


class Complaints:
    """Says each thing once, with a warning; with `raises`, what is not recorded is raised instead."""

    def __init__(self, raises: bool) -> None:
        self._raises = raises
        self._said: set[object] = set()

    def say(self, cause: object, message: str, *arguments: object) -> None:
        """Warn, unless something was said of this cause already."""
        if cause not in self._said:
            self._said.add(cause)
            log.warning(message, *arguments)

    def of_second(self, kind: str, tag: str) -> None:
        text = "The %s %r was added twice before a record(); the last one is kept."
        self.say(("twice", kind, tag), text, kind, tag)

    def of_strange(self, step: int, scalars: Mapping[str, float]) -> None:
        """Of those that are NaN or an infinity."""
        for tag, number in scalars.items():
            if not math.isfinite(number):
                text = "The scalar %r is %s at step %d. It is recorded as it is; this is said once."
                self.say(("finite", tag), text, tag, number, step)

    def of_large(self, step: int, items: Iterable[Item]) -> None:
        """Of those that no reader would take.

        Raises:
            RecordingError: there is one, and it is to be raised.
        """
        for item in items:
            message = (
                f"The {item.kind} {item.tag!r} of step {step} takes {item_bound_bytes(item)} bytes in a file, more "
                f"than the {event_codec.MAX_PAYLOAD_BYTES} that its readers accept: it is not recorded, everything "
                "else of the step is. Record a part of it, or its histogram."
            )
            if self._raises:
                raise RecordingError(message)
            self.say(("large", item.kind, item.tag), "%s", message)

    def of_no_graph(self) -> None:
        self.say("graph", "The network's graph is not recorded yet: it is not compiled, as in PyNative mode.")

    def of_use(self, path: str, is_fork: bool) -> None:
        """Of a recorder that is closed, or another process's.

        Raises:
            RecordingError: it is to be raised.
        """
        if is_fork:
            message = f"{path} was opened by the process that forked this one, which cannot write to it. Open one here."
        else:
            message = f"{path} is closed: nothing more is recorded there."
        if self._raises:
            raise RecordingError(message)
        self.say("use", "%s", message)


def of_unrecorded(path: str, keys: Sequence[tuple[str, str]]) -> None:
    """Warn of values that were added, and that no `record` followed."""
    if keys:
        named = ", ".join(f"{kind} {tag!r}" for kind, tag in keys[:_MOST_NAMED])
        more = f" and {len(keys) - _MOST_NAMED} more" if len(keys) > _MOST_NAMED else ""
        log.warning("Not in %s: %s%s, added after the last record(). Call record(step) before close().",
                    path, named, more)  # fmt: skip


def what_happened(notice: Diagnostic) -> str:
    """An error of the writing side, as an exception says it."""
    what = _WHAT_HAPPENED.get(notice.kind, "Step {} is lost").format(notice.step)
    return f"{what}, in {notice.path}: {notice.reason}"
