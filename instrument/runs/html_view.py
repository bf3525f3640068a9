"""HTML of runs and series for notebooks, by a renderer that the package's root sets.

What reads does not import what shows. When the root (`instrument/__init__.py`) hands out its first name for reading, it
names `instrument.show.notebook` as the renderer; that module is loaded when a notebook asks for HTML.
"""

from __future__ import annotations

from collections.abc import Callable

Renderer = Callable[[object], str]


class HtmlView:
    """A value that a notebook shows as HTML if a renderer is set, and as text if none is."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        return None if _load is None else _load()(self)


_load: Callable[[], Renderer] | None = None


def set_renderer(load: Callable[[], Renderer]) -> None:
    """Have `load` called for the renderer when a notebook asks for HTML."""
    global _load
    _load = load
