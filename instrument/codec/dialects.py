"""Which files a recorder writes, and what an event is in each of them: one layout a dialect.

The first file of a layout is there at once, and says what is missing; the others are made when something belongs there.
"""

from __future__ import annotations

from instrument.codec import event as event_codec
from instrument.codec import wire
from instrument.events import LINEAGE_KINDS, SESSION_END, ArrayItem, Event

SUMMARY, LINEAGE, SCALARS, OTHERS = "summary", "lineage", "scalars", "others"
#: Kinds that share TensorBoard's second file.
_OTHERS = frozenset({"tensor", "image", "histogram", "text", "graph", SESSION_END, *LINEAGE_KINDS})
#: Lineage that may hold metrics, which are scalars in TensorBoard.
_MEASURED = frozenset({"train_lineage", "eval_lineage"})
_NOT_IN_SUMMARY = frozenset({*LINEAGE_KINDS, SESSION_END})


class Layout:
    """The files of a dialect, by their roles, and what goes into them. A file is given by its place among them."""

    def __init__(self, dialect: str, *roles: str) -> None:
        self.dialect = dialect
        self.roles = roles
        self.has_mindspore = SUMMARY in roles
        self.has_tensorboard = OTHERS in roles
        self.has_both = self.has_mindspore and self.has_tensorboard

    def needed(self, event: Event) -> list[int]:
        """Return the files, by their places, that an event may have something for."""
        kinds = {item.kind for item in event.items}
        says_missing = "gap" in kinds
        return [
            file
            for file, role in enumerate(self.roles)
            if _is_needed(role, kinds, event) or (says_missing and file == 0)
        ]

    def version(self, file: int, wall_time: float) -> wire.Pieces:
        """Return the payload that stands first in a file; an empty one if there is none."""
        role = self.roles[file]
        if role == LINEAGE:
            return []
        if role == SUMMARY:
            return event_codec.encode_version(wall_time)
        from instrument.codec import tensorboard_event  # most recorders never need it

        return tensorboard_event.encode_version(wall_time)

    def encode(self, event: Event) -> list[list[wire.Pieces]]:
        """Return the payloads of an event for each file."""
        if not self.has_tensorboard:
            return [event_codec.encode(event), _lineage_payloads(event) if event.items else []]
        if self.has_both and event.items:
            # What is costly is done once: both files have the same histograms and pictures.
            items = [event_codec.finish(item) if isinstance(item, ArrayItem) else item for item in event.items]
            event = event._replace(items=items)
        return [self._encode(file, role, event) for file, role in enumerate(self.roles)]

    def _encode(self, file: int, role: str, event: Event) -> list[wire.Pieces]:
        if role == SUMMARY:
            return event_codec.encode(event)
        if role == LINEAGE:
            return _lineage_payloads(event)
        from instrument.codec import tensorboard_event

        if role == SCALARS:
            gaps = tensorboard_event.encode_gaps(event) if not file and event.items else []
            return gaps + tensorboard_event.encode_scalars(event, event.aliases)
        return tensorboard_event.encode_others(event, event.aliases) if event.items else []


def _is_needed(role: str, kinds: set[str], event: Event) -> bool:
    if role == SUMMARY:
        return bool(event.scalars) or not kinds <= _NOT_IN_SUMMARY
    if role == LINEAGE:
        return not kinds.isdisjoint(LINEAGE_KINDS)
    if role == SCALARS:
        return bool(event.scalars) or not kinds.isdisjoint(_MEASURED)
    return not kinds.isdisjoint(_OTHERS)


def _lineage_payloads(event: Event) -> list[wire.Pieces]:
    items = [item for item in event.items if item.kind in LINEAGE_KINDS]
    if not items:
        return []
    from instrument.codec import lineage  # most events have none

    return [lineage.encode_event(item.kind, event_codec.message_data(item), event.wall_time) for item in items]


LAYOUTS: dict[str, Layout] = {
    "mindspore": Layout("mindspore", SUMMARY, LINEAGE),
    "tensorboard": Layout("tensorboard", SCALARS, OTHERS),
    "both": Layout("both", SUMMARY, LINEAGE, SCALARS, OTHERS),
}
MINDSPORE = LAYOUTS["mindspore"]
