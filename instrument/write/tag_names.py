"""Names for TensorBoard's dialect, where a tag belongs to the first kind that has it."""

from __future__ import annotations

import logging

from instrument.events import Event
from instrument.write.diagnostics import Diagnostics

#: Kinds whose tag TensorBoard sees.
_NAMED = ("tensor", "image", "histogram", "text")
#: Tags beyond so many are not remembered, and keep their names.
_MOST_TAGS = 100_000


class TagNames:
    """Which kind each tag belongs to, and what it is called for another. Whoever calls holds the sink's lock."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self._diagnostics = diagnostics
        self._kinds: dict[str, str] = {}
        self._aliases: dict[tuple[str, str], str] = {}

    def named(self, event: Event) -> Event:
        """The event with the names that differ from its tags."""
        keys = [("scalar", tag) for tag in event.scalars]
        keys += [(item.kind, str.__str__(item.tag)) for item in event.items if item.kind in _NAMED]
        aliases = {key: alias for key in keys if (alias := self._alias(*key))}
        return event._replace(aliases=aliases) if aliases else event

    def _alias(self, kind: str, tag: str) -> str:
        """The name of a kind's tag where it is not the tag itself; else empty."""
        owner = self._kinds.get(tag)
        if owner == kind:
            return ""
        if owner is None:
            if len(self._kinds) < _MOST_TAGS:
                self._kinds[tag] = kind
            return ""
        alias = self._aliases.get((kind, tag))
        if alias is None:
            alias = self._aliases[kind, tag] = self._free_name(tag, kind)
            text = "%r is a %s already, and TensorBoard shows one kind a tag: there the %s is called %r."
            self._diagnostics.note(logging.WARNING, text, tag, owner, kind, alias)
        return alias

    def _free_name(self, tag: str, kind: str) -> str:
        name = f"{tag}/{kind}"
        while self._kinds.setdefault(name, kind) != kind or name in self._aliases.values():
            name += "_"
        return name
